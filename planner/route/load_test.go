package route

import (
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// loaded checks what the router says of its load against its own turns and what it
// said before: totals only grow, and everything that is not failing waits or is placed.
func (w *world) loaded(l *schemas.Load) {
	if len(l.Pools) > 1 {
		w.t.Fatalf("load of %d pools, there is one", len(l.Pools))
	}
	for _, p := range l.Pools {
		waiting, placed := 0, 0
		for _, t := range w.r.turns {
			switch t.state {
			case stateWaiting:
				waiting++
			case statePlaced:
				placed++
			}
		}
		if p.WaitPrefill+p.WaitDecode+p.Held != waiting || p.Prefilling+p.Decoding != placed {
			w.t.Fatalf("the load says %+v, %d turns wait and %d are placed", p, waiting, placed)
		}
		if p.Turns > uint64(len(w.turns)) || p.Ended > p.Turns+uint64(w.old) {
			w.t.Fatalf("the load counts %d turns and %d ends of %d", p.Turns, p.Ended, len(w.turns))
		}
		b := w.before
		if p.Turns < b.Turns || p.Prompt < b.Prompt || p.Uncached < b.Uncached || p.Attention < b.Attention || p.Ended < b.Ended || p.Uncached > p.Prompt {
			w.t.Fatalf("totals went from %+v to %+v", b, p)
		}
		w.before = p
	}
}

// TestLoad: totals count a turn once, whatever becomes of its attempts, and what was
// expected of a prompt is set right by what was found.
func TestLoad(t *testing.T) {
	s := &script{t: t, r: New(Config{Cell: "c0", Epoch: 7}), now: 1000 * second, hbs: map[string]*schemas.Heartbeat{}, mute: map[string]bool{}, asks: map[string]uint64{}}
	do := func(cmd string, words ...string) { s.line(cmd, words) }
	load := func() schemas.PoolLoad {
		t.Helper()
		do("wait", "500ms")
		if s.load.Router != 7 || len(s.load.Pools) != 1 {
			t.Fatalf("load %+v", s.load)
		}
		return s.load.Pools[0]
	}
	do("exec", "p", "role=prefill")
	do("exec", "d", "role=decode", "slots=2")
	do("ready", "a", "n=1000")
	do("ready", "b", "n=1500", "from=640")
	p := load()
	if p.Turns != 2 || p.Prompt != 2500 || p.Uncached != 1000+860 || p.Prefilling != 2 || p.PrefillTokens != 960+832 {
		t.Fatalf("two turns are placed: %+v", p)
	}
	if want := 1000.0*500 + 860*(640+430); p.Attention != want {
		t.Errorf("attention %g, want %g", p.Attention, want)
	}

	// It is lost, comes again, and nothing was there of what lineage knew.
	do("done", "b", "p", "returned", "stage=prefill", "reason=role_changes")
	do("done", "a", "p", "prefilled", "to=d")
	do("ready", "b", "n=1500", "from=640") // published twice
	p = load()
	if p.Turns != 2 || p.Uncached != 1860 || p.Decoding != 1 || p.DecodeTokens != 1000 {
		t.Fatalf("one came back: %+v", p)
	}
	do("done", "b", "p", "prefilled", "attempt=2", "to=d", "cached=0")
	if p = load(); p.Uncached != 2500 {
		t.Fatalf("all of b was computed: %+v", p)
	}

	// More was found than was known: the next turn pays it back.
	do("ready", "c", "n=1000")
	do("done", "c", "p", "prefilled", "cached=640")
	if p = load(); p.Uncached != 3500 || p.WaitDecode != 1 || p.WaitPrefill != 0 {
		t.Fatalf("c is computed and waits for a slot: %+v", p)
	}
	do("ready", "e", "n=700")
	if p = load(); p.Uncached != 3560 {
		t.Fatalf("640 tokens were counted too many: %+v", p)
	}
	do("result", "a", "on=d")
	if p = load(); p.Ended != 1 || p.Context != 0 {
		t.Fatalf("a ended: %+v", p)
	}
	do("cancel", "e")
	do("published", "e")
	if p = load(); p.Ended != 1 || p.Turns != 4 || p.WaitPrefill+p.Prefilling != 0 {
		t.Fatalf("e was cancelled: %+v", p)
	}
}
