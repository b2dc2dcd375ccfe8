package llamacpp_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
)

// TestTail: a sequence that goes on elsewhere from blocks and a tail has the logits and
// the blocks that it would have had, wherever it is cut.
func TestTail(t *testing.T) {
	path := preset(t, "tiny")
	a := openEngine(t, path, llamacpp.Options{Slots: 2, Context: 512})
	b := openEngine(t, path, llamacpp.Options{Slots: 2, Context: 512})
	const from, to = 60, 200
	answer := prompt(to, 2)
	step := func(e *llamacpp.Engine, seq gpuexec.SeqID, i int) []float32 {
		t.Helper()
		if err := e.Step(gpuexec.PhaseDecode, []gpuexec.Row{{Seq: seq, Token: answer[i], Pos: int32(i), Logits: true}}); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(e.Logits(0))
	}
	prefill(t, a, 0, answer[:from], 0)
	for n := from; n < to; n++ {
		if n%gpuexec.BlockTokens != 0 && n%7 == 0 {
			var blocks [][]byte
			for range n / gpuexec.BlockTokens {
				blocks = append(blocks, make([]byte, a.Limits().BlockBytes))
			}
			tail := make([]byte, a.Limits().BlockBytes)
			if err := errors.Join(a.Export(0, 0, blocks), a.ExportTail(0, tail), b.ImportTail(1, blocks, tail, n%gpuexec.BlockTokens)); err != nil {
				t.Fatal(err)
			}
			if b.Len(1) != n {
				t.Fatalf("%d tokens after the import of %d", b.Len(1), n)
			}
			again := make([]byte, len(tail))
			if err := b.ExportTail(1, again); err != nil || !slices.Equal(again, tail) {
				t.Errorf("the tail of %d tokens differs after an import: %v", n, err)
			}
			if want, got := step(a, 0, n), step(b, 1, n); !slices.Equal(got, want) {
				t.Errorf("logits behind %d tokens differ", n)
			}
			b.Drop(1)
			continue
		}
		step(a, 0, n)
	}
	for _, err := range []error{
		b.ImportTail(1, nil, make([]byte, 3), 5), b.ImportTail(1, nil, make([]byte, b.Limits().BlockBytes), 0),
		b.ImportTail(1, nil, make([]byte, b.Limits().BlockBytes), 64), b.ImportTail(9, nil, make([]byte, b.Limits().BlockBytes), 5),
		b.ExportTail(1, make([]byte, b.Limits().BlockBytes)), a.ExportTail(0, make([]byte, 3)),
	} {
		if !errors.Is(err, gpuexec.ErrBadBlock) {
			t.Errorf("%v, want ErrBadBlock", err)
		}
	}
}
