package demand_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/schemas/calib"
)

// load reads a given calibration, or skips: they are no part of the repository.
func load(t *testing.T, name string) *calib.Calibration {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if b, err := os.ReadFile(filepath.Join(dir, "shared", "calib", name+".json")); err == nil {
			c, err := calib.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			c.Derate = 1
			return c
		}
		if filepath.Dir(dir) == dir {
			t.Skipf("no shared/calib/%s.json above the working folder", name)
		}
		dir = filepath.Dir(dir)
	}
}

// TestFromCalibration: the work of full steps is the time of a full step, and decode
// steps take what the calibration says.
func TestFromCalibration(t *testing.T) {
	for _, name := range []string{"glm-5.2_gb300_dep4", "kimi-k2.6_gb300_dep4"} {
		c := load(t, name)
		m := demand.FromCalibration(c)
		rank := []calib.Chunk{{Tokens: 8192, Prefix: 32_768}}
		d, err := c.PrefillStep(rank, rank, rank, rank)
		if err != nil {
			t.Fatal(err)
		}
		got := m.Prefill(4, 4*8192, 4*8192*(32_768+4096))
		if want := d.Seconds(); math.Abs(got-want) > 0.01*want {
			t.Errorf("%s: a full step is %.4f s of work, and takes %.4f", name, got, want)
		}
		for _, b := range []int{4, 64, 200, 256} {
			d, err := c.DecodeStep(b, float64(b)*20_000)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := m.StepTime(float64(b), float64(b)*20_000), d.Seconds(); math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: a step of %d takes %.6f s, want %.6f", name, b, got, want)
			}
		}
		if a := m.Alone(m.Prefill(1, 300, 300*150)); a < m.Launch {
			t.Errorf("%s: a small prompt takes %.3f s alone, less than the launch of a step", name, a)
		}
	}
}

// TestTotals: what came is never negative, unknown after a restart, and the sum is right between.
func TestTotals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var total demand.Total
		last, known := 0.0, false
		for range rapid.IntRange(1, 50).Draw(t, "n") {
			v := rapid.OneOf(rapid.Float64Range(0, 1e12), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), -1})).Draw(t, "v")
			came, ok := total.Step(v)
			if !demand.Finite(v) || v < 0 {
				if ok || came != 0 {
					t.Fatalf("%g counted as %g", v, came)
				}
				continue
			}
			if want := known && v >= last; ok != want || ok && came != v-last {
				t.Fatalf("%g after %g: %g, %t", v, last, came, ok)
			}
			last, known = v, true
		}
	})
}

// TestRate: the windows meet a steady rate at once, follow a change in their time, and
// what is no amount changes nothing.
func TestRate(t *testing.T) {
	var r demand.Rate
	for range 10 {
		r.Add(50, 0.5)
	}
	if math.Abs(r.Fast-100) > 1 || math.Abs(r.Slow-100) > 1 {
		t.Fatalf("100 per second for 5 s: %+v", r)
	}
	for range 24 {
		r.Add(100, 0.5)
	}
	if r.Fast < 180 || r.Slow > 0.95*r.Fast {
		t.Errorf("200 per second for 12 s: %+v", r)
	}
	if a := r.Ahead(12); a < r.Fast || a > 2*r.Fast {
		t.Errorf("a rising rate of %.0f is expected to be %.0f", r.Fast, a)
	}
	was := r
	r.Add(math.NaN(), 1)
	r.Add(1, 0)
	r.Add(-5, 1)
	if r != was {
		t.Errorf("no amount changed %+v to %+v", was, r)
	}
}

// TestMeasured: without a calibration costs come from reports; with one they are corrected, within
// bounds, and only by prefill steps that were full.
func TestMeasured(t *testing.T) {
	work := func(b float64) demand.Work {
		steps := 50.0
		return demand.Work{
			Seconds: 2, Size: 1, PrefillSeconds: 1, PrefillTokens: 10_000,
			DecodeSeconds: steps * (0.02 + 0.001*b), Steps: steps, Rows: steps * b, DecodeTokens: steps * b * 2,
		}
	}
	var m demand.Measured
	if m.Confident() {
		t.Error("confident without a sample")
	}
	for i := range 20 {
		m.Add(work(float64(10+i*10)), 0, 1000, false)
	}
	got := m.Model()
	if !m.Confident() || math.Abs(got.Token-1e-4) > 1e-6 || math.Abs(got.Accept-2) > 1e-9 {
		t.Errorf("measured %+v", got)
	}
	if s := got.StepTime(100, 0); math.Abs(s-0.12) > 0.001 {
		t.Errorf("a step of 100 takes %.4f s, want 0.12", s)
	}

	given := demand.Model{Token: 1e-5, Launch: 0.1, Accept: 1, B: []float64{0, 256}, Step: []float64{0.02, 0.276}}
	m = demand.Measured{Given: given}
	for range 20 {
		m.Add(work(50), 0, 0, false)
	}
	if got := m.Model(); got.Token != given.Token {
		t.Errorf("half empty steps changed a token's cost to %g", got.Token)
	}
	for range 20 {
		m.Add(work(50), 0, 0, true)
	}
	if got := m.Model(); math.Abs(got.Token-5e-5) > 1e-9 {
		t.Errorf("10 times slower than calibrated: a token costs %g, want the bound of 5 times", got.Token)
	}
}

// FuzzMeasured: no report makes a model that cannot be computed with.
func FuzzMeasured(f *testing.F) {
	f.Add(2.0, 1.0, 100.0, 1.0, 100.0, 50.0, 500.0, 1.0, 100.0, 100.0, true)
	f.Fuzz(func(t *testing.T, s, ps, pt, ds, dt, steps, rows, size, att, ctx float64, full bool) {
		for _, given := range []demand.Model{{}, {Token: 1e-5, Accept: 1, B: []float64{0, 256}, Step: []float64{0.02, 0.04}}} {
			m := demand.Measured{Given: given}
			for range 6 {
				m.Add(demand.Work{Seconds: s, PrefillSeconds: ps, PrefillTokens: pt, DecodeSeconds: ds, DecodeTokens: dt, Steps: steps, Rows: rows, Size: size}, att, ctx, full)
			}
			got := m.Model()
			for _, x := range []float64{got.Token, got.Accept, got.StepTime(10, 0)} {
				if !demand.Finite(x) || x < 0 {
					t.Fatalf("model %+v", got)
				}
			}
		}
	})
}

// TestFaster: everything takes a tenth, and the model that it was made from is as it was.
func TestFaster(t *testing.T) {
	m := demand.Model{Turn: 0.02, Token: 1e-5, Attention: 1e-10, Launch: 0.1, Lanes: 4, Context: 1e-10, Accept: 3, B: []float64{0, 256}, Step: []float64{0.02, 0.04}}
	f := m.Faster(10)
	for name, x := range map[string][2]float64{
		"prefill": {m.Prefill(1, 5000, 1e8), f.Prefill(1, 5000, 1e8)},
		"alone":   {m.Alone(0.1), f.Alone(0.01)},
		"step":    {m.StepTime(100, 1e6), f.StepTime(100, 1e6)},
	} {
		if math.Abs(x[0]/x[1]-10) > 1e-9 {
			t.Errorf("%s takes %g, ten times faster %g", name, x[0], x[1])
		}
	}
}
