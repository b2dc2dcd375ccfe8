package flip_test

import (
	"slices"
	"testing"

	"github.com/weir-dev/weir/planner/flip"
)

func rules() *flip.Config {
	c := &flip.Config{}
	c.Defaults()
	return c
}

// TestRegret: a split that is far better is taken within seconds, one that is a little better
// after longer, one within the dead band never.
func TestRegret(t *testing.T) {
	c := rules()
	for _, x := range []struct {
		gain     float64
		from, to float64 // seconds until roles change back
	}{{5, c.Dwell, c.Dwell + 1}, {0.5, 14, 24}, {0.1, 80, 130}, {0.05, 1e9, 1e9}} {
		s := &flip.State{}
		s.Changed(1000, -1)
		took := 1e9
		for i := range 1000 {
			now := 1000 + float64(i)
			if take, _ := s.Judge(c, now, 8, []flip.Choice{{By: 1, Gain: x.gain, Cost: 1}}); take >= 0 {
				took = now - 1000
				break
			}
		}
		if took < x.from || took > x.to {
			t.Errorf("a gain of %g over 8 takes %g s, want %g to %g", x.gain, took, x.from, x.to)
		}
	}
}

// TestTurns: demand that turns around faster than it pays for is not followed, and never costs
// more than twice what knowing the future would have cost.
func TestTurns(t *testing.T) {
	c := rules()
	const base, gain, cost = 8.0, 2.0, 1.0
	for _, half := range []int{1, 2, 3, 5, 8, 13, 30, 60, 300} {
		s := &flip.State{}
		s.Changed(0, 1)
		at, lost, turns := 1, 0.0, 0
		const seconds = 3600
		for now := 1; now <= seconds; now++ {
			best := 1
			if now/half%2 == 1 {
				best = -1
			}
			x := flip.Choice{By: -at, Gain: -gain, Cost: cost}
			if best != at {
				x.Gain = gain
				lost += gain
			}
			if take, _ := s.Judge(c, float64(now), base, []flip.Choice{x}); take >= 0 {
				at = best
				s.Changed(float64(now), at)
				lost += cost
				turns++
			}
		}
		// Who knows the future follows each turn, or stays, whichever costs less.
		price := 2*cost + c.Patience*base
		least := min(gain*seconds/2, price*float64(seconds/half))
		if lost > 2*least+gain*c.Dwell*float64(seconds/half)+price {
			t.Errorf("turning every %d s costs %.0f, knowing it %.0f", half, lost, least)
		}
		if half <= 3 && turns > 4 {
			t.Errorf("turning every %d s is followed %d times", half, turns)
		}
		if half >= 60 && turns < seconds/half/2 {
			t.Errorf("turning every %d s is followed %d times only", half, turns)
		}
	}
}

// TestSame: changes in one direction need to settle only.
func TestSame(t *testing.T) {
	c, s := rules(), &flip.State{}
	s.Changed(100, 1)
	x := []flip.Choice{{By: 2, Gain: 3, Cost: 1}}
	if take, r := s.Judge(c, 101, 6, x); r != flip.RuleSettle || take >= 0 {
		t.Errorf("after 1 s: %s", r)
	}
	if take, r := s.Judge(c, 100+c.Settle, 6, x); r != flip.RuleGain || take != 0 {
		t.Errorf("after %g s: %s", c.Settle, r)
	}
}

// TestOrder: who holds least goes first, then who changed longest ago.
func TestOrder(t *testing.T) {
	xs := []flip.Mover{{ID: "d", Size: 1, Busy: 3}, {ID: "c", Size: 1, Busy: 1, Since: 9}, {ID: "b", Size: 1, Busy: 1, Since: 2}, {ID: "a", Size: 4, Busy: 2, Since: 50}}
	flip.Order(xs)
	var ids []string
	for _, x := range xs {
		ids = append(ids, x.ID)
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(ids, want) {
		t.Errorf("%v, want %v", ids, want)
	}
	for _, n := range []int{0, 1, 8, 9, 255} {
		got := flip.Counts(n)
		if len(got) > 15 || n > 0 && (got[0] != 1 || got[len(got)-1] != n) || !slices.IsSorted(got) {
			t.Errorf("up to %d: %v", n, got)
		}
	}
}
