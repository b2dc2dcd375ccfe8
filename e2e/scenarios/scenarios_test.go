package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-dev/weir/services/sim"
	"pgregory.net/rapid"
)

// set loads the scenario files, or skips the test where they are not.
func set(t *testing.T) *Set {
	t.Helper()
	s, err := Find(".")
	if errors.Is(err, ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fakeRun is a world of closed forms: a split has one top per scenario, model and load,
// weir is 10 % above it.
func fakeRun(_ context.Context, j Job) (*sim.Figures, error) {
	best := 6.0 - j.Load
	if j.First {
		best = 1
	}
	if strings.HasPrefix(j.Model, "kimi") {
		best++
	}
	rate := 0.0
	switch j.Arm.Kind {
	case Weir:
		rate = 110
	case Aggregated:
		rate = 80
	case StaticPrivate:
		rate = 95 - 5*math.Abs(float64(j.Arm.Prefill)-best)
	case StaticShared:
		rate = 100 - 5*math.Abs(float64(j.Arm.Prefill)-best)
	case DynamoA, DynamoB:
		rate = 70 - 5*math.Abs(float64(j.Arm.Prefill)-best) - j.Arm.RestartS/100
		if j.Arm.Loops == LoopsSLA {
			rate += 5
		}
	case HBMOnly:
		rate = 50
	}
	if j.Arm.Kind == StaticPrivate && j.Arm.Prefill == 8 {
		return nil, fmt.Errorf("%w: in the fake", sim.ErrTooLong)
	}
	f := &sim.Figures{MakespanS: 100_000 / rate, Flips: 3}
	f.TurnsPerS, f.TokPerS = rate, 10*rate
	f.Goodput = math.Min(float64(j.Concurrency), 1100-0.1*float64(j.Concurrency))
	return f, nil
}

func TestEveryBarIsComputed(t *testing.T) {
	s := set(t)
	for _, scenario := range All() {
		want, got := map[string]bool{}, map[string]bool{}
		for n := range s.Bars[scenario] {
			want[n] = true
		}
		for n := range computations[scenario] {
			got[n] = true
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s: the file has the bars %v, computed are %v", scenario, want, got)
		}
	}
	for _, n := range []string{"vs_dynamo_like_start_a", "vs_dynamo_like_start_b"} {
		if at := s.Bars[Shift][n].AtLoad; at != 1 {
			t.Errorf("%s is computed at load 1, the file says %g", n, at)
		}
	}
}

func TestSearchAndBars(t *testing.T) {
	s := set(t)
	runner := NewRunner(fakeRun, 2, nil)
	search := &Search{Set: s, Runner: runner, Seeds: []uint64{1}, Reduced: true}
	st := &Settings{}
	saved := 0
	save := func(string, *Settings) error { saved++; return nil }
	if err := search.All(t.Context(), All(), st, save); err != nil || saved != len(All()) {
		t.Fatalf("%d scenarios were searched: %v", saved, err)
	}
	n, _ := runner.Made()
	t.Logf("a reduced search made %d runs", n)
	full := NewRunner(fakeRun, 2, nil)
	wide := &Settings{}
	if err := (&Search{Set: s, Runner: full, Seeds: []uint64{1}}).All(t.Context(), All(), wide, save); err != nil {
		t.Fatal(err)
	}
	nFull, _ := full.Made()
	t.Logf("a full one for one seed makes %d", nFull)
	for _, f := range st.Found {
		if f.Arm.Kind == DynamoB && f.Point.Load != 1 {
			continue // the settings of load 1 are kept
		}
		w, err := wide.Find(f.Scenario, f.Model, f.Point, f.Arm.Kind)
		if err != nil || f.MakespanS != w.MakespanS || f.TurnsPerS != w.TurnsPerS {
			t.Errorf("%s with %s at %s: reduced found %v, %.1f s; full %v, %.1f s (%v)", f.Scenario, f.Model, f.Point, f.Arm, f.MakespanS, w.Arm, w.MakespanS, err)
		}
	}

	file := filepath.Join(t.TempDir(), "settings.json")
	if err := st.Write(file); err != nil {
		t.Fatal(err)
	}
	st, err := ReadSettings(file, s)
	if err != nil {
		t.Fatal(err)
	}
	e := &Eval{Set: s, Settings: st, Runner: runner, Seeds: []uint64{1, 2, 3}}
	want := map[string]float64{
		Shift + ".vs_static_best_same_shared_tier":       1.1,
		Shift + ".vs_static_best_private_tier":           110.0 / 95,
		Shift + ".worst_load_point_vs_best_baseline":     1.1,
		Stationary + ".vs_static_best_same_shared_tier":  1.1,
		Oscillation + ".period_1800":                     1.1,
		Oscillation + ".worst_period_vs_static_best":     1.1,
		Coding + ".vs_static_best_same_shared_tier":      1.1,
		Overload + ".goodput_at_2x_share_of_peak":        (1100 - 0.1*2000) / 1000,
		Shift + ".vs_dynamo_like_start_b":                110 / (75 - 2.4),
		Shift + ".vs_dynamo_like_start_a":                0, // looked at below
		"shift-math-to-computer-use.no-such-bar-in-file": 0,
	}
	for _, scenario := range All() {
		lines, err := e.Bars(t.Context(), scenario)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			if w := want[l.Name]; w > 0 && math.Abs(l.Value-w) > 0.02*w {
				t.Errorf("%s is %.3f (%v), want %.3f", l.Name, l.Value, l.Models, w)
			}
			if l.Met != (l.Value >= l.Bar) || len(l.Samples) == 0 || l.Model == "" || l.Samples[0].Weir.TurnsPerS == 0 {
				t.Errorf("%+v", l)
			}
		}
	}
	a, err := st.Find(Shift, s.Models(Shift)[0], Point{Load: 1}, DynamoA)
	if err != nil || a.Arm.Prefill != 1 || a.Arm.Loops != LoopsSLA || a.Arm.RestartS != RestartS {
		t.Errorf("start a is %+v (%v), want the best of the first phase, 1, with the better loops", a.Arm, err)
	}
	if w, err := wide.Find(Shift, s.Models(Shift)[0], Point{Load: 1}, DynamoA); err != nil || swept(w.Tried) != len(restarts) || swept(a.Tried) != 0 {
		t.Errorf("%d shorter restarts were tried, in a full search %d, want 0 and %d (%v)", swept(a.Tried), swept(w.Tried), len(restarts), err)
	}
	s.Hashes["scenarios/workloads.json"] = "other"
	if _, err := ReadSettings(file, s); !errors.Is(err, ErrSettings) {
		t.Errorf("settings of other files: %v", err)
	}
}

// swept is how many restarts other than RestartS were tried.
func swept(ts []Tried) (n int) {
	for _, t := range ts {
		if t.Restart > 0 {
			n++
		}
	}
	return n
}

// TestBaselines: a search of baselines makes no run of weir.
func TestBaselines(t *testing.T) {
	s := set(t)
	runner := NewRunner(func(ctx context.Context, j Job) (*sim.Figures, error) {
		if j.Arm.Kind == Weir {
			t.Errorf("%s was run", j)
		}
		return fakeRun(ctx, j)
	}, 2, nil)
	st := &Settings{}
	if err := (&Search{Set: s, Runner: runner, Seeds: []uint64{1}, Reduced: true, Baselines: true}).All(t.Context(), All(), st, func(string, *Settings) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Find(Shift, s.Models(Shift)[0], Point{Load: 1}, StaticShared); err != nil {
		t.Error(err)
	}
}

// A run is made once, and a store spares it the next time, unless the program changed.
func TestRunnerKeeps(t *testing.T) {
	var made atomic.Int32
	run := func(ctx context.Context, j Job) (*sim.Figures, error) {
		made.Add(1)
		return fakeRun(ctx, j)
	}
	file := filepath.Join(t.TempDir(), "runs.jsonl")
	job := Job{Scenario: Shift, Model: "m", Point: Point{Load: 1}, Arm: Arm{Kind: StaticShared, Prefill: 4}, Seed: 1}
	long := job
	long.Arm = Arm{Kind: StaticPrivate, Prefill: 8}
	for _, tt := range []struct {
		stamp string
		made  int32
	}{{"a", 2}, {"a", 2}, {"b", 4}, {"a", 4}} {
		r := NewRunner(run, 2, nil)
		if _, err := r.Keep(file, tt.stamp); err != nil {
			t.Fatal(err)
		}
		var fs []func() error
		for range 5 {
			fs = append(fs, func() error {
				f, err := r.Do(t.Context(), job)
				if err == nil && f.TurnsPerS == 0 {
					err = errors.New("no figures")
				}
				return err
			}, func() error {
				if _, err := r.Do(t.Context(), long); !errors.Is(err, sim.ErrTooLong) {
					return fmt.Errorf("work that does not end gave %w", err)
				}
				return nil
			})
		}
		if err := errors.Join(Go(fs...), r.Close()); err != nil {
			t.Fatal(err)
		}
		if got := made.Load(); got != tt.made {
			t.Errorf("stamp %s: %d runs were made, want %d", tt.stamp, got, tt.made)
		}
	}
}

// A run that fails is named at the end, and the others are searched all the same.
func TestSearchGoesOn(t *testing.T) {
	s := set(t)
	broken := errors.New("an invariant is broken")
	run := func(ctx context.Context, j Job) (*sim.Figures, error) {
		if j.Arm.Kind == StaticShared && j.Arm.Prefill == 5 {
			return nil, broken
		}
		return fakeRun(ctx, j)
	}
	search := &Search{Set: s, Runner: NewRunner(run, 2, nil), Seeds: []uint64{1}, Reduced: true}
	st := &Settings{}
	err := search.All(t.Context(), []string{Stationary}, st, func(string, *Settings) error { return nil })
	if !errors.Is(err, broken) || len(st.Found) != 2 {
		t.Errorf("%d settings were found, error %v", len(st.Found), err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := search.All(ctx, []string{Coding}, st, func(string, *Settings) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a search that was stopped gave %v", err)
	}
}

// A climb finds the top of anything with one top, and of what has dents one wide.
func TestClimb(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(rt, "n")
		best := rapid.IntRange(1, n).Draw(rt, "best")
		dent := rapid.IntRange(0, n).Draw(rt, "dent")
		value := func(i int) float64 {
			v := -math.Abs(float64(i - best))
			if i == dent && i != best {
				v -= 1.5
			}
			return v
		}
		known := map[int]bool{}
		at := func(is ...int) error {
			for _, i := range is {
				known[i] = true
			}
			return nil
		}
		got, err := climb(rapid.IntRange(1, n).Draw(rt, "start"), n, 2, func(i int) float64 {
			if !known[i] {
				rt.Fatalf("%d was never run", i)
			}
			return value(i)
		}, at)
		if err != nil || got != best {
			rt.Fatalf("found %d, want %d (%v)", got, best, err)
		}
	})
}

func TestPeak(t *testing.T) {
	n, best := peak([]int{1, 2, 3, 4}, []float64{5, 9.95, 10, 9})
	if n != 2 || best != 10 {
		t.Errorf("the peak is at %d with %g, want at 2, within 1 %% of 10", n, best)
	}
}

func TestMedianAndWorst(t *testing.T) {
	a, b := Point{Load: 1}, Point{Load: 2}
	ss := []Sample{{Value: 3, point: a}, {Value: 1, point: a}, {Value: 2, point: a}, {Value: 1.5, point: b}, {Value: 9, point: b}}
	if m := median(ss); m != 2 {
		t.Errorf("the median is %g, want 2", m)
	}
	if w := worst(ss); w != 2 {
		t.Errorf("the smallest median of a point is %g, want 2", w)
	}
}

// Every arm is a system that the simulated cell accepts.
func TestArms(t *testing.T) {
	s := set(t)
	sc, cal := s.Scenarios[Shift], s.cals[calKey(s.Models(Shift)[0], 1)]
	for _, a := range []Arm{
		{Kind: Weir},
		{Kind: StaticShared, Prefill: 3},
		{Kind: StaticPrivate, Prefill: 8},
		{Kind: Aggregated},
		{Kind: HBMOnly, Prefill: 2},
		{Kind: DynamoA, Prefill: 1, Loops: LoopsThroughput, RestartS: 240},
		{Kind: DynamoB, Prefill: 5, Loops: LoopsBoth, RestartS: 5},
	} {
		sys, err := a.System(sc, cal, 1)
		if err != nil {
			t.Errorf("%s: %v", a, err)
			continue
		}
		if sys.Planner != nil && sys.Planner("c0", nil) == nil {
			t.Errorf("%s: its planner is nil", a)
		}
	}
	for _, a := range []Arm{{Kind: "best"}, {Kind: DynamoA, Prefill: 1}} {
		if _, err := a.System(sc, cal, 1); err == nil {
			t.Errorf("%v was accepted", a)
		}
	}
}
