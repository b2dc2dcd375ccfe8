// Package telemetry shows that a turn's spans from all processes form one trace,
// and that the metrics count it.
//
// Read sink.go (an OTLP receiver), then telemetry_test.go.
package telemetry
