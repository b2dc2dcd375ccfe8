package split_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/planner/split"
)

func model() demand.Model {
	return demand.Model{
		Turn: 0.025, Token: 1.67e-5, Attention: 3.7e-11, Launch: 0.099, Lanes: 4, Context: 1.63e-10, Accept: 2.99,
		B: []float64{0, 4, 16, 32, 64, 128, 256}, Step: []float64{.020, .0213, .0275, .0293, .0313, .0341, .0408},
	}
}

// best is the split of n executors with the greatest value.
func best(s split.State, n int) (p int) {
	most := math.Inf(-1)
	for i := 1; i < n; i++ {
		if v := s.Value(float64(i), float64(n-i)).Value; v > most {
			most, p = v, i
		}
	}
	return p
}

// TestValue: states that were met in cells of nine, and the splits that are best there.
func TestValue(t *testing.T) {
	for name, x := range map[string]struct {
		s        split.State
		from, to int
	}{
		"long answers fill decode": {split.State{
			Prefill: 4, Decode: 5, Rate: 7, Ended: 7, TurnWork: 0.027, Mix: split.Fit(10_900, 1.8e8), InPrefill: 1, InDecode: 1000, Context: 6000, Slots: 256, KV: 8.2e6,
		}, 1, 1},
		"tool calls wait for prefill": {split.State{
			Prefill: 2, Decode: 7, Rate: 34, Ended: 34, TurnWork: 0.055, Mix: split.Fit(203, 60_000), InPrefill: 600, InDecode: 80, Context: 50_000, Slots: 256, KV: 8.2e6,
		}, 6, 8},
		"a mix with both at their ease": {split.State{
			Prefill: 4, Decode: 5, Rate: 72, Ended: 72, TurnWork: 0.052, Mix: split.Fit(750, 9e6), InPrefill: 25, InDecode: 690, Context: 20_000, Slots: 256, KV: 8.2e6,
		}, 4, 5},
		"decode is full, prefill holds what waits for it": {split.State{
			Prefill: 6, Decode: 3, Rate: 18, Ended: 18, TurnWork: 0.05, Mix: split.Fit(3000, 4e7), InPrefill: 1, InDecode: 768, WaitDecode: 1000, Context: 9000, Slots: 256, KV: 8.2e6,
		}, 1, 5},
		"only tool calls have ended of what runs": {split.State{
			Prefill: 4, Decode: 5, Rate: 17, Ended: 17, TurnWork: 0.05, Mix: split.Fit(203, 60_000), InPrefill: 4, InDecode: 1000, Context: 6000, Slots: 256, KV: 8.2e6,
		}, 1, 3},
		"prompts wait longer than for a lane": {split.State{
			Prefill: 4, Decode: 5, Rate: 66.6, Ended: 66.6, TurnWork: 0.052, Mix: split.Fit(820, 1.1e7), InPrefill: 66, InDecode: 660, Context: 12_000, Slots: 256, KV: 8.2e6,
		}, 5, 5},
		"KV is full before the slots are": {split.State{
			Prefill: 5, Decode: 4, Rate: 20, Ended: 20, TurnWork: 0.05, Mix: split.Fit(1000, 1.1e6), InPrefill: 2, InDecode: 160, WaitDecode: 200, Context: 50_000, Slots: 256, KV: 2e6,
		}, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			x.s.Model = model()
			if p := best(x.s, 9); p < x.from || p > x.to {
				for i := 1; i < 9; i++ {
					t.Logf("%d:%d %+v", i, 9-i, x.s.Value(float64(i), float64(9-i)))
				}
				t.Errorf("%d prefill, want %d to %d", p, x.from, x.to)
			}
		})
	}
	s := split.State{Model: model(), Prefill: 5, Decode: 4, Rate: 20, Ended: 20, TurnWork: 0.05, Mix: split.Fit(1000, 1.1e6), InDecode: 160, WaitDecode: 900, Context: 50_000, Slots: 256, KV: 2e6}
	if o := s.Value(5, 4); o.Why != "kv" {
		t.Errorf("full KV is called %q", o.Why)
	}
}

// TestQueue: prompts that are computed and then wait for the KV of the one decode executor
// are no work done, however many of them there are.
func TestQueue(t *testing.T) {
	s := split.State{
		Model: model(), Prefill: 8, Decode: 1, Rate: 38, Ended: 38, TurnWork: 0.055, Mix: split.Fit(203, 60_000), InDecode: 145, WaitDecode: 600, Context: 55_000, Slots: 256, KV: 8.2e6,
	}
	few, many := s, s
	few.InPrefill, many.InPrefill = 50, 400
	if a, b := few.Value(8, 1), many.Value(8, 1); b.Value > 1.01*a.Value {
		t.Errorf("with 50 prompts in prefill the split is worth %+v, with 400 %+v", a, b)
	}
}

// TestFit: the mix has the mean and the second moment that it was made from.
func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mean := rapid.Float64Range(1, 1e5).Draw(t, "mean")
		c2 := rapid.Float64Range(0, 100).Draw(t, "c2")
		m := split.Fit(mean, (1+c2)*mean*mean)
		got := (1-m.Long)*m.Short + m.Long*m.Longer
		if math.Abs(got-mean) > 1e-6*mean {
			t.Fatalf("mean %g of %+v, want %g", got, m, mean)
		}
		if c2 <= 1 {
			return
		}
		// Phases are exponential: the second moment of each is twice its mean squared.
		second := 2 * ((1-m.Long)*m.Short*m.Short + m.Long*m.Longer*m.Longer)
		if want := (1 + c2) * mean * mean; math.Abs(second-want) > 1e-6*want {
			t.Fatalf("second moment %g, want %g", second, want)
		}
	})
	if m := split.Fit(0, 5); m != (split.Mix{}) {
		t.Errorf("nothing ended: %+v", m)
	}
}

// TestFinite: whatever is measured, values are numbers, and more of both phases is never
// worth less.
func TestFinite(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		f := func(most float64) float64 {
			if rng.IntN(5) == 0 {
				return 0
			}
			return most * math.Pow(rng.Float64(), 3)
		}
		s := split.State{
			Model: model(), Prefill: f(64), Decode: f(64), Mixed: f(3), Rate: f(2000), Ended: f(2000), TurnWork: f(2), Mix: split.Fit(f(20_000), f(1e9)),
			InPrefill: f(20_000), InDecode: f(20_000), WaitDecode: f(20_000), Context: f(2e5), Slots: f(512), KV: f(1e7),
		}
		if rng.IntN(10) == 0 {
			s.Model = demand.Model{}
		}
		p, d := f(64), f(64)
		o := s.Value(p, d)
		if !demand.Finite(o.Value) || o.Value < 0 {
			t.Fatalf("value %+v of %g:%g in %+v", o, p, d, s)
		}
		if more := s.Value(p+1, d+1); more.Value < o.Value*0.97-1e-6 {
			t.Fatalf("%g:%g is worth %.4f, with one more of each %.4f: %+v", p, d, o.Value, more.Value, s)
		}
	}
}
