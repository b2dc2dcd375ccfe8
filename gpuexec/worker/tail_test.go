package worker_test

import (
	"slices"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestTail: a decode that is handed over anywhere goes on at once elsewhere: the next
// executor computes no token that the one before it had computed, and the answer is the
// same. Without the tail in the tier it computes what is missing.
func TestTail(t *testing.T) {
	for engine, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			for _, c := range []struct{ prompt, cut int }{
				{10, 1}, {10, 30}, {10, 54}, {10, 55}, {10, 56}, {64, 1}, {65, 1}, {100, 27}, {100, 28}, {100, 29}, {100, 30}, {130, 70},
			} {
				ready := turn(c.prompt, 120)
				whole := newRig(t, engine, newTier()).run(ready)
				first := newRig(t, engine, newTier())
				if o := first.open(&schemas.OpenOp{Ready: ready}); o.Missing > 0 {
					first.prefill(0, 1<<20)
				}
				var before answer
				for len(before.tokens) < c.cut {
					d := first.do(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0}, MaxSteps: min(1, len(before.tokens)), MaxNS: 1 << 40}})
					before.take(t, &d.Decode.Rows[0])
				}
				if d := first.do(&schemas.Op{Seal: &schemas.SealOp{Tail: true}}); d.Err != "" {
					t.Fatal(d.Err)
				}
				for _, lost := range []bool{false, true} {
					tier := first.tier.copyOf()
					fed := c.prompt + c.cut - 1
					if lost {
						for k, b := range tier.blocks {
							if b.Index == fed/64 {
								delete(tier.blocks, k)
							}
						}
					}
					next := newRig(t, engine, tier)
					o := next.open(&schemas.OpenOp{Ready: ready, Attempt: 2, Delivered: before.tokens})
					if want := (c.prompt - 1) / 64 * 64; o.Missing != 0 || o.Cached < want {
						t.Fatalf("%+v, lost %v: cached %d, missing %d", c, lost, o.Cached, o.Missing)
					}
					if n := next.eng.Len(0); !lost && n != fed || lost && n != fed/64*64 {
						t.Errorf("%+v, lost %v: the engine holds %d tokens, %d were fed", c, lost, n, fed)
					}
					got := answer{tokens: slices.Clone(before.tokens), text: before.text}
					next.decode(0, &got, 3, 1<<20)
					if !slices.Equal(got.tokens, whole.tokens) || got.whole != whole.whole || got.finish != whole.finish {
						t.Errorf("%+v, lost %v: %d tokens, the whole answer has %d", c, lost, len(got.tokens), len(whole.tokens))
					}
					// What is sealed at the end is what one executor would have sealed.
					next.seal(0)
					all := newRig(t, engine, newTier())
					all.run(ready)
					all.seal(0)
					for k, b := range all.tier.blocks {
						if g := next.tier.blocks[k]; g == nil || g.Decoded != b.Decoded || !slices.Equal(g.data, b.data) {
							t.Errorf("%+v, lost %v: block %d differs", c, lost, b.Index)
						}
					}
				}
			}
		})
	}
}

// TestTailRefused: a full tier keeps none, a seal in between asks for none, and a turn
// that must be computed again does not use one.
func TestTailRefused(t *testing.T) {
	ready := turn(10, 40)
	r := newRig(t, 1, newTier())
	r.open(&schemas.OpenOp{Ready: ready})
	var a answer
	r.decode(0, &a, 4, 20)
	r.seal(0)
	if n := len(r.tier.blocks); n != 0 {
		t.Errorf("%d blocks after a seal in between", n)
	}
	r.tier.room = 0
	r.do(&schemas.Op{Seal: &schemas.SealOp{Tail: true}})
	if n := len(r.tier.blocks); n != 0 {
		t.Errorf("%d blocks in a full tier", n)
	}
	r.tier.room = -1
	r.do(&schemas.Op{Seal: &schemas.SealOp{Tail: true}})
	if n := len(r.tier.blocks); n != 1 {
		t.Errorf("%d blocks, want the tail", n)
	}
	again := newRig(t, 1, r.tier.copyOf())
	again.open(&schemas.OpenOp{Ready: ready, Attempt: 2, Delivered: a.tokens, Again: true})
	if again.eng.Len(0) != 0 {
		t.Error("tokens that are to be sent again were not computed again")
	}
}
