package llamacpp_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
)

// BenchmarkBlocks measures export and import of a 1,000-token sequence of the
// small model beside a plain copy of the same bytes. The three take turns, so that
// each finds the caches as the others left them, which is what a server sees. It
// reports medians in ms and the ratios copy : operation (1 is the speed of memcpy).
func BenchmarkBlocks(b *testing.B) {
	e := openEngine(b, preset(b, "small"), llamacpp.Options{Slots: 4, Context: 2048})
	prefill(b, e, 0, prompt(1000, 1), 0)
	src := blocks(b, e, 0)
	dst := blocks(b, e, 0)
	ops := []func() error{
		func() error {
			for i := range src {
				copy(dst[i], src[i])
			}
			return nil
		},
		func() error { return e.Export(0, 0, dst) },
		func() error { return e.Import(1, src) },
	}
	times := make([][]float64, len(ops))
	b.SetBytes(int64(len(ops) * len(src) * e.Limits().BlockBytes))
	for b.Loop() {
		e.Drop(1)
		for i, op := range ops {
			start := time.Now()
			if err := op(); err != nil {
				b.Fatal(err)
			}
			times[i] = append(times[i], time.Since(start).Seconds()*1e3)
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	median := func(i int) float64 { return times[i][len(times[i])/2] }
	b.ReportMetric(median(0), "memcpy-ms")
	b.ReportMetric(median(1), "export-ms")
	b.ReportMetric(median(2), "import-ms")
	b.ReportMetric(median(0)/median(1), "export-vs-memcpy")
	b.ReportMetric(median(0)/median(2), "import-vs-memcpy")
}

// BenchmarkDecode measures decode steps: allocations must stay at zero.
func BenchmarkDecode(b *testing.B) {
	const context = 32768
	e := openEngine(b, preset(b, "tiny"), llamacpp.Options{Slots: 1, Context: context})
	row := []gpuexec.Row{{Token: 5, Logits: true}}
	b.ReportAllocs()
	for b.Loop() {
		if e.Len(0) == 256 {
			e.Drop(0)
		}
		row[0].Pos = int32(e.Len(0))
		if err := e.Step(gpuexec.PhaseDecode, row); err != nil {
			b.Fatal(err)
		}
		e.Logits(0)
	}
}
