package worker_test

import (
	"bytes"
	"encoding/hex"
	"maps"
	"slices"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/goengine"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/gpuexec/spm"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/schemas"
)

// orderedTier knows an order: the chain with this end goes first.
type orderedTier struct {
	*memTier
	first worker.Key
	why   map[worker.Key]schemas.Gone
}

func (o *orderedTier) First(tails []worker.Key) int { return slices.Index(tails, o.first) }

func (o *orderedTier) Why(k worker.Key) (schemas.Gone, bool) { g, ok := o.why[k]; return g, ok }

// next is the turn after a: its prompt, the answer, and more tokens.
func next(ready *schemas.Ready, a answer, more int) *schemas.Ready {
	c := *ready
	c.Prompt.Tail = slices.Concat(ready.Prompt.Tail, schemas.Tokens(a.tokens))
	for i := range more {
		c.Prompt.Tail = append(c.Prompt.Tail, int32('a'+i*5%26))
	}
	c.Prompt.N = len(c.Prompt.Tail)
	return &c
}

// finish ends a turn as an executor does.
func (r *rig) finish(seq int32) *schemas.DeviceState {
	r.t.Helper()
	r.seal(seq)
	return r.do(&schemas.Op{Drop: &schemas.DropOp{Seq: seq}}).Device
}

// TestKept: the second turn of a session finds its context in the engine, without an
// import, and yields the bits that an import yields.
func TestKept(t *testing.T) {
	for i, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			tier := newTier()
			r := newRig(t, i, tier)
			one := turn(200, 40)
			one.IgnoreEOS = true
			a := r.run(one)
			d := r.finish(0)
			if d == nil || d.Blocks != 3 || len(d.Kept) != 1 || d.Kept[0].N != 3 {
				t.Fatalf("the engine keeps %+v, want 3 blocks of 239 tokens", d)
			}
			two := next(one, a, 70)

			other := newRig(t, i, tier.copyOf())
			if o := other.open(&schemas.OpenOp{Ready: two}); o.Cached != 192 {
				t.Fatalf("the import found %d tokens", o.Cached)
			}
			imports := 0
			r.tier.onData = func(worker.Ref) { imports++ }
			// Any place of the executor meets it.
			d2 := r.do(&schemas.Op{Open: &schemas.OpenOp{Ready: two, Seq: 2, Stage: schemas.StageDecode}})
			if d2.Err != "" || d2.Open.Cached != 192 || imports != 0 {
				t.Fatalf("%+v with %d blocks read from the tier: %s", d2.Open, imports, d2.Err)
			}
			if d2.Device == nil || d2.Device.Blocks != 0 {
				t.Errorf("the engine keeps %+v while the turn uses it", d2.Device)
			}
			var got, want answer
			r.prefill(2, 100)
			other.prefill(0, 100)
			r.decode(2, &got, 4, 1<<20)
			other.decode(0, &want, 4, 1<<20)
			if !slices.Equal(got.tokens, want.tokens) {
				t.Errorf("tokens %v, after an import %v", got.tokens, want.tokens)
			}
			r.tier.onData = nil
			r.seal(2)
			other.seal(0)
			if len(r.tier.blocks) != len(other.tier.blocks) {
				t.Fatalf("%d and %d blocks are sealed", len(r.tier.blocks), len(other.tier.blocks))
			}
			for k, b := range other.tier.blocks {
				if mine := r.tier.blocks[k]; mine == nil || !bytes.Equal(mine.data, b.data) {
					t.Errorf("block %d has other bytes", b.Index)
				}
			}
		})
	}
}

// TestKeptFork: a prompt that leaves the kept context early takes what is common.
func TestKeptFork(t *testing.T) {
	r := newRig(t, 1, newTier())
	one := turn(300, 2)
	r.run(one)
	r.finish(0)
	clear(r.tier.blocks) // the host's memory has lost all of it
	fork := turn(300, 2)
	fork.Prompt.Tail[150]++
	if o := r.open(&schemas.OpenOp{Ready: fork}); o.Cached != 128 || o.Missing != 2 {
		t.Errorf("%+v", o)
	}
	r.prefill(0, 10)
	// The blocks that the tier lost are stored again, or the new ones would hang in the air.
	if s := r.seal(0); s.Blocks != 4 || s.Sealed != 4 {
		t.Errorf("%+v", s)
	}
}

// TestKeptYields: kept sequences make room: the one that the tier's order names, or
// the one left longest ago.
func TestKeptYields(t *testing.T) {
	e, err := nullengine.New(nullengine.Options{Slots: 2, Context: 1024})
	if err != nil {
		t.Fatal(err)
	}
	tier := &orderedTier{memTier: newTier(), why: map[worker.Key]schemas.Gone{}}
	r := rigOf(t, e, nullengine.Vocab{}, tier.memTier)
	r.w = worker.New(worker.Config{Engine: e, Vocab: nullengine.Vocab{}, Tier: tier, Keys: shaKeys{}, Format: r.format, Now: func() int64 { r.now++; return r.now }})
	salted := func(s string) *schemas.Ready {
		c := turn(130, 2)
		c.Keys.Salt = s
		return c
	}
	kept := func(d *schemas.DeviceState) (out []string) {
		for _, x := range d.Kept {
			out = append(out, x.Key)
		}
		return out
	}
	r.run(salted("a"))
	ka := kept(r.finish(0))[0]
	r.run(salted("b"))
	both := kept(r.finish(0))
	if len(both) != 2 {
		t.Fatalf("%v are kept in an engine of two sequences", both)
	}
	r.run(salted("c"))
	if got := kept(r.finish(0)); len(got) != 2 || slices.Contains(got, ka) {
		t.Errorf("%v are kept, the oldest was %s", got, ka)
	}
	// Now the order names the newest.
	d := r.do(&schemas.Op{Open: &schemas.OpenOp{Ready: salted("b"), Stage: schemas.StagePrefill}}) // takes b's
	if d.Open == nil || d.Open.Cached != 128 {
		t.Fatalf("%+v %s", d.Open, d.Err)
	}
	d = r.do(&schemas.Op{Drop: &schemas.DropOp{Seq: 0}})
	left := kept(d.Device)
	copy(tier.first[:], unhex(t, left[0]))
	r.w.Sweep()
	r.run(salted("d"))
	if got := kept(r.finish(0)); slices.Contains(got, left[0]) || !slices.Contains(got, left[1]) {
		t.Errorf("%v are kept, the order named %s", got, left[0])
	}
	// A context that was evicted stays. An erased one leaves the engine, and one of which
	// the tier does not know whether it was.
	was := maps.Clone(tier.blocks)
	say := func(rules ...string) {
		n := 0
		for k := range was {
			tier.why[k] = schemas.Gone{Rule: rules[n%len(rules)]}
			n++
		}
		clear(tier.blocks)
		r.w.Sweep()
	}
	say("lru", "on_disk")
	if d := r.do(&schemas.Op{Verify: &schemas.VerifyOp{}}); d.Device != nil || e.Len(0) == 0 || e.Len(1) == 0 {
		t.Errorf("%+v, %d and %d tokens are left of two evicted contexts", d.Device, e.Len(0), e.Len(1))
	}
	say("erase", "forgotten", "")
	if d := r.do(&schemas.Op{Verify: &schemas.VerifyOp{}}); d.Device == nil || d.Device.Blocks != 0 || d.Verify.Problem != "" || e.Len(0)+e.Len(1) != 0 {
		t.Errorf("%+v, %d and %d tokens are left of erased sessions", d.Device, e.Len(0), e.Len(1))
	}
}

// TestKeptRoom: an engine whose sequences share memory drops what it keeps before it
// says that there is no room.
func TestKeptRoom(t *testing.T) {
	e, err := goengine.New(tiny(), goengine.Options{Slots: 3, Context: 512, Blocks: 6})
	if err != nil {
		t.Fatal(err)
	}
	v, err := spm.New(tiny(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	r := rigOf(t, e, v, newTier())
	for _, salt := range []string{"a", "b", "c", "d"} {
		c := turn(250, 2)
		c.Keys.Salt = salt
		r.run(c)
		r.finish(0)
	}
	back := turn(250, 2) // import of the first one's blocks
	back.Keys.Salt = "a"
	if o := r.open(&schemas.OpenOp{Ready: back}); o.Cached != 192 {
		t.Errorf("%+v", o)
	}
}

// noCut is an engine that cannot forget the end of a sequence.
type noCut struct{ gpuexec.StepEngine }

// TestNothingKept: without Cutter, and for a turn that was begun elsewhere, the tier
// is asked as ever.
func TestNothingKept(t *testing.T) {
	e, v := engines[0].make(t)
	r := rigOf(t, noCut{e}, v, newTier())
	r.run(turn(200, 2))
	if d := r.finish(0); d != nil || e.Len(0) != 0 {
		t.Errorf("%+v, %d tokens", d, e.Len(0))
	}
	r = newRig(t, 0, newTier())
	one := turn(200, 100)
	one.IgnoreEOS = true
	a := r.run(one)
	r.finish(0)
	reads := 0
	r.tier.onData = func(worker.Ref) { reads++ }
	r.open(&schemas.OpenOp{Ready: one, Delivered: a.tokens[:80]})
	if reads == 0 {
		t.Error("a turn with delivered tokens was not rebuilt from the tier")
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
