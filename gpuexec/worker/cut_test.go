package worker_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/schemas"
)

// TestEveryCut is the promise of hand-over and crash: wherever a turn is cut, the
// next attempt goes on with the same tokens and the same text, no index comes
// twice, and the KV bytes are those of the uninterrupted run (invariants 2 and 4).
// It is tried with the blocks of the first attempt in the tier, without the
// generated ones, and with an empty tier.
func TestEveryCut(t *testing.T) {
	for e, eng := range engines {
		prompts, out, every := []int{1, 63, 64, 65, 130}, 140, 1
		if eng.name == "go" {
			prompts, out, every = []int{1, 65, 130}, 80, 19 // it really computes
		}
		for _, n := range prompts {
			for _, temp := range []float64{0, 0.9} {
				t.Run(fmt.Sprintf("%s/%d/%v", eng.name, n, temp), func(t *testing.T) {
					ready := turn(n, out)
					ready.Sampling.Temperature = temp
					ready.IgnoreEOS = true
					whole := newRig(t, e, newTier())
					want := whole.run(ready)
					if want.finish != "length" || len(want.tokens) != out || want.whole != want.text {
						t.Fatalf("the whole turn: %s, %d tokens, %q, %q", want.finish, len(want.tokens), want.whole, want.text)
					}
					kv := blocks(t, whole.eng)
					for cut := 0; cut <= out; cut += every {
						testCut(t, e, ready, cut, want, kv)
					}
				})
			}
		}
	}
}

func blocks(t *testing.T, e gpuexec.StepEngine) [][]byte {
	out := make([][]byte, e.Len(0)/gpuexec.BlockTokens)
	for i := range out {
		out[i] = make([]byte, e.Limits().BlockBytes)
	}
	if err := e.Export(0, 0, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func testCut(t *testing.T, engine int, ready *schemas.Ready, cut int, want answer, kv [][]byte) {
	t.Helper()
	first := newRig(t, engine, newTier())
	if o := first.open(&schemas.OpenOp{Ready: ready, Attempt: 1}); o.Missing > 0 {
		first.prefill(0, 1)
		first.prefill(0, 1<<20)
	}
	first.seal(0)
	promptOnly := first.tier.copyOf()
	var before answer
	first.decode(0, &before, 1, cut)
	// One step may yield the first token and one more.
	before.tokens = before.tokens[:min(cut, len(before.tokens))]
	first.seal(0)
	for name, tier := range map[string]*memTier{"sealed": first.tier, "prompt": promptOnly, "empty": newTier()} {
		second := newRig(t, engine, tier)
		o := second.open(&schemas.OpenOp{Ready: ready, Attempt: 2, Delivered: before.tokens})
		if o.NeedHead || o.Cached%gpuexec.BlockTokens != 0 && o.Cached != ready.Prompt.N {
			t.Fatalf("cut %d, %s: %+v", cut, name, o)
		}
		if o.Missing > 0 {
			second.prefill(0, 1<<20)
		}
		got := answer{tokens: slices.Clone(before.tokens)}
		// What the caller has of the text is what the first attempt had sent.
		got.text = textOf(t, engine, ready, want.tokens[:cut])
		second.decode(0, &got, 3, 1<<20)
		if !slices.Equal(got.tokens, want.tokens) || got.text != want.text || got.whole != want.text || got.finish != want.finish {
			t.Fatalf("cut %d, %s: tokens %v\nwant %v\ntext %q\nwant %q, whole %q, finish %s", cut, name, got.tokens, want.tokens, got.text, want.text, got.whole, got.finish)
		}
		for i, b := range blocks(t, second.eng) {
			if !bytes.Equal(b, kv[i]) {
				t.Fatalf("cut %d, %s: KV block %d differs", cut, name, i)
			}
		}
	}
}

// textOf is the text that is certain after these tokens.
func textOf(t *testing.T, engine int, ready *schemas.Ready, tokens []int32) (out string) {
	_, v := engines[engine].make(t)
	text := chat.NewText(ready.Stop)
	for i, tok := range tokens {
		out += text.Add(v.Piece(tok, false))
		if i == ready.MaxNew-1 {
			out += text.Flush()
		}
	}
	return out
}
