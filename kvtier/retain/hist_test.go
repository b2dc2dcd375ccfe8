package retain

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// of returns a histogram of a distribution given by its quantile function.
func of(quantile func(p float64) float64) *hist {
	var h hist
	const n = 20000
	for i := range n {
		h.add(quantile((float64(i)+0.5)/n), 1)
	}
	return &h
}

func look(h *hist, age, delay float64) outlook {
	var b blend
	b.add(h, 1)
	return b.outlook(age, delay)
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*want) {
		t.Errorf("%s: %g, want %g within %g %%", what, got, want, 100*tolerance)
	}
}

func TestRateOfKnownDistributions(t *testing.T) {
	exponential := of(func(p float64) float64 { return -10 * math.Log(1-p) })
	for _, age := range []float64{0, 1, 10, 30} {
		near(t, "exponential of 10 s: rate", look(exponential, age, 0).rate, 0.1, 0.15)
	}
	near(t, "exponential of 10 s: median", look(exponential, 5, 0).median, 10*math.Ln2, 0.05)

	fixed := of(func(float64) float64 { return 60 })
	near(t, "60 s after 0 s", look(fixed, 0, 0).rate, 1.0/60, 0.1)
	near(t, "60 s after 40 s", look(fixed, 40, 0).rate, 1.0/20, 0.2)
	near(t, "60 s after 40 s, 20 s of queue", look(fixed, 40, 20).rate, 1.0/40, 0.15)

	// Pareto from 1 s with exponent 0.7: the mean is infinite, the rate is not.
	tail := of(func(p float64) float64 { return math.Pow(1-p, -1/0.7) })
	last := math.Inf(1)
	for _, age := range []float64{1, 3, 10, 30, 100} {
		r := look(tail, age, 0).rate
		if r >= last || r <= 0 {
			t.Errorf("heavy tail: %g at %g s, %g before", r, age, last)
		}
		last = r
	}
	// Most answer at once, the rest takes a minute: the best moment to give up is early.
	mixed := of(func(p float64) float64 {
		if p < 0.9 {
			return 1
		}
		return 60
	})
	near(t, "nine of ten in 1 s", look(mixed, 0, 0).rate, 0.9, 0.15)
	if r := look(mixed, 5, 0).rate; r > 1.0/40 {
		t.Errorf("the tenth after 5 s: %g", r)
	}
}

func TestThoseThatNeverReturn(t *testing.T) {
	h := of(func(float64) float64 { return 10 })
	for range 20000 {
		h.add(math.Inf(1), 1)
	}
	o := look(h, 0, 0)
	near(t, "chance", o.returns, 0.5, 0.01)
	near(t, "rate of one in two", o.rate, 0.05, 0.15)
	near(t, "median of those that return", o.median, 10, 0.1)
	if o := look(h, 30, 0); o != (outlook{}) {
		t.Errorf("past the last return: %+v", o)
	}
	if o := look(new(hist), 1, 0); o != (outlook{}) {
		t.Errorf("nothing seen: %+v", o)
	}
}

// TestRateIsTheBestMoment compares with every moment at which one could give up.
func TestRateIsTheBestMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		waits := rapid.SliceOfN(rapid.Float64Range(0.1, 1000), 1, 30).Draw(t, "waits")
		lost := rapid.IntRange(0, 5).Draw(t, "lost")
		age := rapid.Float64Range(0, 500).Draw(t, "age")
		delay := rapid.Float64Range(0, 5).Draw(t, "delay")
		var h hist
		for _, w := range waits {
			h.add(w, 1)
		}
		for range lost {
			h.add(math.Inf(1), 1)
		}
		o := look(&h, age, delay)
		best := 0.0
		for end := binOf(age); end < bins; end++ {
			best = max(best, naiveRate(&h, age, delay, edges[end+1]))
		}
		if math.Abs(o.rate-best) > 1e-4*best+1e-9 {
			t.Fatalf("rate %g, best %g", o.rate, best)
		}
	})
}

// naiveRate integrates hits and residence between age and until in small steps, with
// mass spread evenly within each bin.
func naiveRate(h *hist, age, delay, until float64) float64 {
	within := func(from, to float64) (m float64) {
		for i, n := range h.n {
			lo, hi := max(from, edges[i]), min(to, edges[i+1])
			if hi > lo {
				m += float64(n) * (hi - lo) / (edges[i+1] - edges[i])
			}
		}
		return m
	}
	end := edges[bins]
	alive := within(age, end) + float64(h.never)
	hits := within(age, until)
	held := alive * delay
	for i := range bins {
		lo, hi := max(age, edges[i]), min(until, edges[i+1])
		if hi > lo { // the survivors fall linearly within a bin
			held += (hi - lo) * (within(lo, end) + within(hi, end) + 2*float64(h.never)) / 2
		}
	}
	if held == 0 {
		return 0
	}
	return hits / held
}

func TestForgetting(t *testing.T) {
	var h hist
	for range 2000 {
		h.add(1, 0.99)
	}
	near(t, "entries", float64(h.count()), 100, 0.02)
	for range 300 {
		h.add(100, 0.99)
	}
	if o := look(&h, 0, 0); o.median < 50 {
		t.Errorf("after 300 waits of 100 s the median is %g s", o.median)
	}
	for range 100000 {
		h.add(100, 0.99)
	}
	if s := float64(h.sum); math.IsInf(s, 0) || math.IsNaN(s) || h.count() < 90 {
		t.Errorf("after many entries: sum %g, %g entries", s, h.count())
	}
}

func TestLognormal(t *testing.T) {
	var h hist
	h.lognormal(0.98, 10, 50, 0.02)
	o := look(&h, 0, 0)
	near(t, "returns", o.returns, 0.98, 0.001)
	near(t, "median", o.median, 10, 0.1)
	var below float64
	for i := range h.n {
		if edges[i+1] <= 50 {
			below += float64(h.n[i])
		}
	}
	near(t, "below p90", below, 0.98*0.9, 0.05)
}
