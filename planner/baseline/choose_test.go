package baseline

import (
	"fmt"
	"maps"
	"testing"

	"github.com/weir-dev/weir/planner/route"
	"pgregory.net/rapid"
)

// A turn stays with the executor that holds its prefix until the backlog there costs
// more than the prefix saves, and what waits for an executor counts as its backlog.
func TestChooseBindsAtArrival(t *testing.T) {
	c := NewChoose(1)
	need := route.Need{Job: "a", Tokens: 100 * 64, Blocks: 99}
	xs := []route.Candidate{{ID: "e0", Room: true}, {ID: "e1", Host: 80}, {ID: "e2", Room: true}}
	if i := c.Prefill(need, xs); i != 1 {
		t.Fatalf("chose %d, want 1, which holds 80 of 100 blocks", i)
	}
	xs[1].Host, xs[0].Device = 0, 99
	if i := c.Prefill(need, xs); i != 1 {
		t.Errorf("chose %d for a turn that is bound to 1", i)
	}
	xs[1].Room = true
	if i := c.Prefill(need, xs); i != 1 || len(c.bound) != 0 || len(c.backlog) != 0 {
		t.Errorf("chose %d, left %v and %v", i, c.bound, c.backlog)
	}

	// Turns with the same prefix: the holder's backlog grows by 20 blocks with each,
	// until it outweighs 60 (80 blocks at 0.75).
	xs = []route.Candidate{{ID: "e0", Room: true}, {ID: "e1", Host: 80}}
	n := 0
	for ; n < 10; n++ {
		if c.Prefill(route.Need{Job: fmt.Sprint("j", n), Tokens: 100 * 64, Blocks: 99}, xs) != 1 {
			break
		}
	}
	if n < 3 || n > 4 {
		t.Errorf("%d turns were bound to the holder of their prefix, want 3 or 4", n)
	}

	// The executor goes away: its turns are chosen for anew.
	if i := c.Prefill(route.Need{Job: "j0", Tokens: 100 * 64, Blocks: 99}, xs[:1]); i != 0 || len(c.bound) != n-1 {
		t.Errorf("chose %d, %d are bound", i, len(c.bound))
	}
}

func TestChooseDecodeByLoad(t *testing.T) {
	c := NewChoose(1)
	xs := []route.Candidate{{ID: "e0", DecodeBlocks: 0}, {ID: "e1", Room: true, DecodeBlocks: 30, Device: 99}, {ID: "e2", Room: true, DecodeBlocks: 20}}
	if i := c.Decode(route.Need{Tokens: 100 * 64}, xs); i != 2 {
		t.Errorf("chose %d, want 2: the least loaded one with room, whatever they hold", i)
	}
	if i := c.Decode(route.Need{Tokens: 64}, xs[:1]); i != -1 {
		t.Errorf("chose %d although none has room", i)
	}
}

// Backlogs are what is bound, whatever comes in which order, and equal seeds choose
// equally.
func TestChooseProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		a, b := NewChoose(seed), NewChoose(seed)
		for range rapid.IntRange(1, 60).Draw(rt, "turns") {
			need := route.Need{Job: fmt.Sprint("j", rapid.IntRange(0, 9).Draw(rt, "job")), Tokens: rapid.IntRange(1, 10_000).Draw(rt, "tokens")}
			var xs []route.Candidate
			for i := range rapid.IntRange(0, 4).Draw(rt, "workers") {
				xs = append(xs, route.Candidate{ID: fmt.Sprint("e", i), Room: rapid.Bool().Draw(rt, "room"), Host: rapid.IntRange(0, need.Tokens/64).Draw(rt, "host")})
			}
			i, j := a.Prefill(need, xs), b.Prefill(need, xs)
			if i != j {
				rt.Fatalf("the same seed chose %d and %d", i, j)
			}
			if i < -1 || i >= len(xs) || i == -1 && len(xs) > 0 {
				rt.Fatalf("chose %d of %d", i, len(xs))
			}
			sums := map[string]int{}
			for _, w := range a.bound {
				if w.tokens > 0 {
					sums[w.executor] += w.tokens
				}
			}
			backlog := maps.Clone(a.backlog) // may name executors whose turns find all their tokens
			maps.DeleteFunc(backlog, func(_ string, tokens int) bool { return tokens == 0 })
			if !maps.Equal(backlog, sums) {
				rt.Fatalf("backlogs %v, bound %v", a.backlog, sums)
			}
		}
	})
}
