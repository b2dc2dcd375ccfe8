package baseline

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// The vectors stand in the router's documentation at the commit that doc.go names:
// blocks of prefill, overlap, blocks of decode, cost.
func TestCostVectors(t *testing.T) {
	c := DefaultCost()
	best, at := 0.0, -1
	for i, v := range [][4]float64{{10, 2, 10, 18}, {10, 5, 5, 10}, {10, 8, 9, 11}} {
		got := c.total(v[0], v[1], v[2], 0)
		if got != v[3] {
			t.Errorf("prefill %g, overlap %g, decode %g cost %g, want %g", v[0], v[1], v[2], got, v[3])
		}
		if at < 0 || got < best {
			best, at = got, i
		}
	}
	if at != 1 {
		t.Errorf("worker %d is the cheapest, want 1", at)
	}
}

// The same three workers by way of Load, so that the parts meet where they should.
func TestCostOfLoads(t *testing.T) {
	c := DefaultCost()
	c.AssumeReuse = false
	isl := 10 * c.BlockTokens
	for _, tt := range []struct {
		w    Load
		want float64
	}{
		{Load{Device: 2, ActiveBlocks: 0}, 8 + 10},
		{Load{Host: 4, ActiveBlocks: 3}, 7 + 13},
		{Load{Disk: 4, PrefillTokens: 2 * 64}, 11 + 10},
		{Load{Device: 10, ActiveBlocks: 5, Requests: 9}, 15},
	} {
		if got := c.Of(isl, 0, tt.w); got != tt.want {
			t.Errorf("%+v costs %g, want %g", tt.w, got, tt.want)
		}
	}
	d := DecodeCost()
	if got := d.Of(isl, 0, Load{Device: 10, Host: 10, ActiveBlocks: 4, PrefillTokens: 1 << 20, Reused: 3}); got != 14 {
		t.Errorf("the decode leg costs %g, want 14: load alone", got)
	}
	c.OverlapDecay = 1
	if near, far := c.Of(isl, 0, Load{Device: 8}), c.Of(isl, 0, Load{Device: 8, PrefillTokens: isl}); far-near <= 10 {
		t.Errorf("a backlog of one request adds %g blocks, want more than its 10: the credit decays", far-near)
	}
}

func TestReservoirIsFair(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var hits [4]int
	const rounds = 20_000
	for range rounds {
		r := reservoir{pick: rng.IntN}
		for i, cost := range []float64{3, 1, 1, 1} {
			r.see(i, cost)
		}
		hits[r.at]++
	}
	if hits[0] != 0 {
		t.Errorf("a dearer worker was chosen %d times", hits[0])
	}
	for i := 1; i < 4; i++ {
		if hits[i] < rounds/3-400 || hits[i] > rounds/3+400 {
			t.Errorf("worker %d of three equals was chosen %d times of %d", i, hits[i], rounds)
		}
	}
}

func TestReservoirProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		costs := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 20).Draw(rt, "costs")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		r := reservoir{pick: rng.IntN}
		for i, c := range costs {
			r.see(i, float64(c))
		}
		for i, c := range costs {
			if float64(c) < r.best {
				rt.Fatalf("%v: %d at %d is below the best, %g", costs, c, i, r.best)
			}
		}
		if float64(costs[r.at]) != r.best {
			rt.Fatalf("%v: chose %d, which does not cost %g", costs, r.at, r.best)
		}
	})
}
