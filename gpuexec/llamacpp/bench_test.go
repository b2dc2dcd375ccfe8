package llamacpp_test

import (
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
)

// BenchmarkBlocks measures export and import of a 1,000-token sequence of the
// small model beside a plain copy of the same bytes.
func BenchmarkBlocks(b *testing.B) {
	e := openEngine(b, preset(b, "small"), llamacpp.Options{Slots: 4, Context: 2048})
	prefill(b, e, 0, prompt(1000, 1), 0)
	src := blocks(b, e, 0)
	dst := blocks(b, e, 0)
	size := int64(len(src) * e.Limits().BlockBytes)
	b.Run("memcpy", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			for i := range src {
				copy(dst[i], src[i])
			}
		}
	})
	b.Run("export", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if err := e.Export(0, 0, dst); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("import", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			e.Drop(1)
			if err := e.Import(1, src); err != nil {
				b.Fatal(err)
			}
		}
	})
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
