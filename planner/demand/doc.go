// Package demand turns what flows by into work: seconds that one executor of size 1
// needs for it.
//
// Read model.go first (what prefill and decode cost, from a calibration or measured),
// then measure.go (how reports correct it), then rate.go (totals that others count
// turned into rates per second, whatever those totals do).
//
// Requests are no measure of work: a turn may compute 100 tokens or 100,000, and
// generate 10 or 30,000. Seconds are, and they can be added over both phases.
package demand
