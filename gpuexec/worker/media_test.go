package worker_test

import (
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/schemas"
)

// visual is a prompt of 200 tokens with an image over the border of two blocks.
func visual() *schemas.Ready {
	r := turn(200, 4)
	for i := 50; i < 90; i++ {
		r.Prompt.Tail[i] = nullengine.TokenImage
	}
	r.Prompt.Media = []schemas.MediaSpan{{Digest: "one", Offset: 50, Length: 40}}
	return r
}

func visionRig(t *testing.T, tier *memTier) *rig {
	e, err := nullengine.NewVision(nullengine.Options{Slots: 2, Context: 1024})
	if err != nil {
		t.Fatal(err)
	}
	return rigOf(t, e, nullengine.Vocab{}, tier)
}

// TestMedia: an image's blocks are found again, also by a job that does not carry
// the prompt's head; those of another image are not.
func TestMedia(t *testing.T) {
	first := visionRig(t, newTier())
	want := first.run(visual())
	first.seal(0)
	again := visionRig(t, first.tier)
	if o := again.open(&schemas.OpenOp{Ready: visual()}); o.Cached != 192 {
		t.Errorf("the same prompt: %+v", o)
	}
	other := visual()
	other.Prompt.Media[0].Digest = "two"
	second := visionRig(t, first.tier)
	if o := second.open(&schemas.OpenOp{Ready: other}); o.Cached != 0 {
		t.Errorf("another image: %+v", o)
	}
	second.drop(0)
	if got := second.run(other); got.text == want.text {
		t.Error("the fake engine does not tell two images apart")
	}
}

// TestUncached: a prompt whose images are not fully described neither finds blocks
// nor leaves any.
func TestUncached(t *testing.T) {
	full := visionRig(t, newTier())
	full.run(visual())
	full.seal(0)
	for name, change := range map[string]func(*schemas.Prompt){
		"said so":   func(p *schemas.Prompt) { p.Uncached = true },
		"no digest": func(p *schemas.Prompt) { p.Media[0].Digest = "" },
	} {
		r := visual()
		change(&r.Prompt)
		found := visionRig(t, full.tier)
		if o := found.open(&schemas.OpenOp{Ready: r}); o.Cached != 0 || o.Missing != 3 {
			t.Errorf("%s: found %+v", name, o)
		}
		left := visionRig(t, newTier())
		whole := left.run(r)
		if d := left.seal(0); d.Sealed != 0 || d.Skipped != 3 || len(left.tier.blocks) != 0 {
			t.Errorf("%s: sealed %+v", name, d)
		}
		// A second attempt computes all again, up to where the first one was.
		next := visionRig(t, full.tier)
		if o := next.open(&schemas.OpenOp{Ready: r, Attempt: 2, Delivered: whole.tokens[:2]}); o.Cached != 0 {
			t.Errorf("%s: a second attempt found %+v", name, o)
		}
		next.prefill(0, 100)
		got := answer{tokens: whole.tokens[:2:2], text: whole.text[:2]}
		next.decode(0, &got, 4, 100)
		if got.text != whole.text {
			t.Errorf("%s: a second attempt says %q, the first %q", name, got.text, whole.text)
		}
	}
	// Without names the head's blocks cannot be found.
	r := visual()
	r.Prompt.Uncached = true
	r.Prompt.Tail, r.Prompt.TailFrom = r.Prompt.Tail[128:], 128
	if o := visionRig(t, full.tier).open(&schemas.OpenOp{Ready: r}); !o.NeedHead {
		t.Errorf("a job without its head: %+v", o)
	}
}

// TestNoVision: an engine that takes no images refuses them, and nothing is left.
func TestNoVision(t *testing.T) {
	r := newRig(t, 0, newTier())
	d := r.do(&schemas.Op{Open: &schemas.OpenOp{Ready: visual(), Stage: schemas.StageDecode}})
	if d.Code != schemas.CodeInvalid || !strings.Contains(d.Err, "takes no images") || d.Open != nil {
		t.Errorf("%+v", d)
	}
	if p := r.do(&schemas.Op{Verify: &schemas.VerifyOp{}}).Verify.Problem; p != "" {
		t.Error(p)
	}
}

// pinning is a fake tier that notes what is pinned while room is asked for.
type pinning struct {
	*memTier
	pinned, whenReserved int
}

func (p *pinning) Pin(keys []worker.Key) func() {
	p.pinned += len(keys)
	return func() { p.pinned -= len(keys) }
}

func (p *pinning) Reserve(n int) ([]worker.Slot, error) {
	p.whenReserved = p.pinned
	return p.memTier.Reserve(n)
}

// TestOwnBlocksArePinned: room for a sequence's next blocks is not made of the ones
// before them.
func TestOwnBlocksArePinned(t *testing.T) {
	p := &pinning{memTier: newTier()}
	p.room = 2
	e, err := nullengine.New(nullengine.Options{Slots: 1, Context: 1024})
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(worker.Config{Engine: e, Vocab: nullengine.Vocab{}, Tier: p, Keys: shaKeys{}, Now: func() int64 { return 0 }})
	do := func(op *schemas.Op) schemas.OpDone {
		d := w.Do(op)
		if d.Err != "" {
			t.Fatal(d.Err)
		}
		return d
	}
	do(&schemas.Op{Open: &schemas.OpenOp{Ready: turn(400, 4), Stage: schemas.StagePrefill}})
	do(&schemas.Op{Prefill: &schemas.PrefillOp{Seqs: []int32{0}, MaxBlocks: 10, MaxNS: 1 << 40}})
	if d := do(&schemas.Op{Seal: &schemas.SealOp{}}); d.Seal.Sealed != 2 || p.whenReserved != 0 {
		t.Fatalf("first: %+v, %d pinned", d.Seal, p.whenReserved)
	}
	p.room = 3
	if d := do(&schemas.Op{Seal: &schemas.SealOp{}}); d.Seal.Sealed != 3 || p.whenReserved != 2 || p.pinned != 0 {
		t.Errorf("second: %+v, %d pinned, %d left", d.Seal, p.whenReserved, p.pinned)
	}
}

// remembering is a fake tier that says why every block is gone.
type remembering struct {
	*memTier
	asked []worker.Key
}

func (r *remembering) Why(k worker.Key) (schemas.Gone, bool) {
	r.asked = append(r.asked, k)
	return schemas.Gone{AtNS: 7, Rule: "lru"}, true
}

// TestGone: the tier is asked why a block is gone if it had been computed, about the
// first one that is missing, and not at all otherwise.
func TestGone(t *testing.T) {
	full := newRig(t, 0, newTier())
	full.run(turn(400, 4))
	full.seal(0)
	for _, c := range []struct {
		name        string
		known, have int // tokens computed before, blocks in the tier
		stage       schemas.Stage
		asked       bool
	}{
		{"all that was known is there", 257, 4, schemas.StagePrefill, false},
		{"nothing was known", 0, 0, schemas.StagePrefill, false},
		{"one is gone", 257, 3, schemas.StagePrefill, true},
		{"all are gone", 400, 0, schemas.StageDecode, true},
		{"the last token was never fed", 256, 3, schemas.StageDecode, false},
	} {
		mem := &remembering{memTier: full.tier.copyOf()}
		for k, b := range mem.blocks {
			if b.Index >= c.have {
				delete(mem.blocks, k)
			}
		}
		e, err := nullengine.New(nullengine.Options{Slots: 1, Context: 1024})
		if err != nil {
			t.Fatal(err)
		}
		w := worker.New(worker.Config{Engine: e, Vocab: nullengine.Vocab{}, Tier: mem, Keys: shaKeys{}, Format: full.format, Now: func() int64 { return 0 }})
		r := turn(400, 4)
		r.Miss = &schemas.Miss{Cause: schemas.MissNewText, Known: c.known}
		d := w.Do(&schemas.Op{Open: &schemas.OpenOp{Ready: r, Stage: c.stage}})
		if d.Err != "" || d.Open.Cached != c.have*64 {
			t.Fatalf("%s: %+v", c.name, d)
		}
		if (d.Open.Gone != nil) != c.asked || (len(mem.asked) == 1) != c.asked {
			t.Errorf("%s: gone %+v, asked %d times", c.name, d.Open.Gone, len(mem.asked))
		}
		if c.asked && full.tier.blocks[mem.asked[0]].Index != c.have {
			t.Errorf("%s: asked about block %d", c.name, full.tier.blocks[mem.asked[0]].Index)
		}
	}
}
