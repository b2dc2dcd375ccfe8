// Package compose runs the stack of compose/ from locally made images: one
// container per service, as on a host of its own.
//
// Read compose_test.go (what is shown), then engine.go (the container engine, which
// is started here when none runs), project.go (one stack), and sink.go (where the
// services send their spans). Without WEIR_COMPOSE the tests skip; `make
// compose-test` and `make compose-long` set it.
package compose
