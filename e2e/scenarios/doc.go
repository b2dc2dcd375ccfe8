// Package scenarios runs the scenario files that were registered before any result, in
// the simulated cell of services/sim, and computes their bars as the files word them.
//
// Read arm.go first (the systems that are compared), then job.go and runner.go (one run,
// many runs on few cores), search.go (how each baseline is tuned), settings.go (what was
// found, committed) and bars.go (ratios, medians, which of two models counts).
//
// Ratios are baseline over weir for times and weir over baseline for rates: above 1 means
// that weir is better. Every figure is simulated, the worse of the two models, derate 1.
package scenarios
