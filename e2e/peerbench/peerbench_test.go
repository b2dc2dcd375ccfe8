package peerbench

import "testing"

// BenchmarkPeer reports the figures of Measure. The bar of the ratio is 0.8.
func BenchmarkPeer(b *testing.B) {
	for b.Loop() {
		r, err := Measure(b.Context(), 1)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(r.Ratio, "vs-tcp")
		b.ReportMetric(r.Peer/1e9, "GB/s")
		b.ReportMetric(r.Bare/1e9, "bare-GB/s")
	}
}

// TestRatio: the measurement works. A busy machine says nothing about the bar, so only
// a transfer that is many times slower fails.
func TestRatio(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	r, err := Measure(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if r.Ratio < 0.2 || r.Ratio > 5 || r.Bare <= 0 || r.Peer <= 0 {
		t.Errorf("%+v", r)
	}
	t.Logf("%+v", r)
}
