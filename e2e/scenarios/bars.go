package scenarios

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/weir-dev/weir/services/sim"
)

// Eval computes bars from runs at the settings of a search.
type Eval struct {
	Set      *Set
	Settings *Settings
	Runner   *Runner
	Seeds    []uint64
	Derate   float64 // 0 means 1
}

// Line is one bar with all that a claim must say.
type Line struct {
	Name  string   `json:"name"`
	Value float64  `json:"value"`
	Unit  string   `json:"unit"`
	Bar   float64  `json:"bar"`
	Goal  *float64 `json:"goal,omitempty"`
	Met   bool     `json:"met"`

	Simulated bool               `json:"simulated"`
	Model     string             `json:"model"` // the worse one, which counts
	Models    map[string]float64 `json:"models"`
	Derate    float64            `json:"derate"`
	Statistic string             `json:"statistic"`
	Seeds     []uint64           `json:"seeds"`
	Samples   []Sample           `json:"samples"` // of that model
	Low       float64            `json:"low"`     // over the samples of that model
	High      float64            `json:"high"`
}

// Sample is one ratio and what stands beside it.
type Sample struct {
	Value    float64 `json:"value"`
	At       string  `json:"at"`
	Seed     uint64  `json:"seed"`
	Baseline string  `json:"baseline"`
	// Share is what the baseline reaches here of its most turns per second on the grid.
	Share float64 `json:"baseline_share_of_max,omitempty"`
	Weir  Side    `json:"weir"`
	Base  Side    `json:"base"`

	point Point
}

// Side is one system of a sample.
type Side struct {
	MakespanS float64 `json:"makespan_s,omitempty"`
	TurnsPerS float64 `json:"turns_per_s"`
	TokPerS   float64 `json:"out_tok_per_s"`
	Goodput   float64 `json:"goodput_per_s"`
	E2EMean   float64 `json:"e2e_mean_s"`
	TTFTP95   float64 `json:"ttft_p95_s"`
	TPOTMean  float64 `json:"tpot_mean_ms"`
	Recompute float64 `json:"recompute"`
	Jain      float64 `json:"jain"`
	Flips     int     `json:"flips"`
	Restarts  int     `json:"restarts,omitempty"`
}

func side(f *sim.Figures) Side {
	return Side{
		MakespanS: round(f.MakespanS), TurnsPerS: round(f.TurnsPerS), TokPerS: round(f.TokPerS), Goodput: round(f.Goodput), E2EMean: round(f.E2E.Mean),
		TTFTP95: round(f.TTFT.P95), TPOTMean: round(f.TPOT.Mean * 1e3), Recompute: round(f.Recompute), Jain: round(f.Jain), Flips: f.Flips, Restarts: f.Restarts,
	}
}

// ratio is how much better weir is: baseline over weir for the time of a fixed work,
// weir over baseline for rates. Where a scenario names two rates, the worse one counts,
// so that no class is served at the cost of another.
func ratio(scenario string, weir, base *sim.Figures) float64 {
	switch scenario {
	case Shift:
		return base.MakespanS / weir.MakespanS
	case Oscillation:
		return min(weir.TurnsPerS/base.TurnsPerS, weir.TokPerS/base.TokPerS)
	}
	return weir.TurnsPerS / base.TurnsPerS
}

// one runs weir and a baseline at a point.
func (e *Eval) one(ctx context.Context, scenario, model string, p Point, k Kind, seed uint64) (Sample, error) {
	f, err := e.Settings.Find(scenario, model, p, k)
	if err != nil {
		return Sample{}, err
	}
	job := Job{Scenario: scenario, Model: model, Derate: e.derate(), Point: p, Seed: seed}
	var weir, base *sim.Figures
	err = Go(
		func() (err error) { j := job; j.Arm = Arm{Kind: Weir}; weir, err = e.Runner.Do(ctx, j); return err },
		func() (err error) { j := job; j.Arm = f.Arm; base, err = e.Runner.Do(ctx, j); return err },
	)
	if err != nil {
		return Sample{}, err
	}
	return Sample{
		Value: ratio(scenario, weir, base), At: p.String(), Seed: seed, Baseline: f.Arm.String(), Share: round(f.Share),
		Weir: side(weir), Base: side(base), point: p,
	}, nil
}

func (e *Eval) derate() float64 {
	if e.Derate == 0 {
		return 1
	}
	return e.Derate
}

// grid runs all points and seeds; kind says which baseline a point is compared with.
func (e *Eval) grid(ctx context.Context, scenario, model string, points []Point, kind func(Point) (Kind, error)) ([]Sample, error) {
	out := make([]Sample, len(points)*len(e.Seeds))
	var fs []func() error
	for i, p := range points {
		k, err := kind(p)
		if err != nil {
			return nil, err
		}
		for n, seed := range e.Seeds {
			fs = append(fs, func() (err error) {
				out[i*len(e.Seeds)+n], err = e.one(ctx, scenario, model, p, k, seed)
				return err
			})
		}
	}
	return out, Go(fs...)
}

func with(k Kind) func(Point) (Kind, error) { return func(Point) (Kind, error) { return k, nil } }

// strongest is the baseline that did best at a point in the search.
func (e *Eval) strongest(scenario, model string) func(Point) (Kind, error) {
	return func(p Point) (Kind, error) {
		var best *Found
		for i := range e.Settings.Found {
			f := &e.Settings.Found[i]
			if f.Scenario != scenario || f.Model != model || f.Point != p || f.Arm.Kind == HBMOnly || f.Arm.Kind == Weir || f.TurnsPerS == 0 {
				continue
			}
			better := best == nil || scenario == Shift && f.MakespanS < best.MakespanS || scenario != Shift && f.TurnsPerS > best.TurnsPerS
			if better {
				best = f
			}
		}
		if best == nil {
			return "", fmt.Errorf("%w: none for %s with %s at %s", ErrSettings, scenario, model, p)
		}
		return best.Arm.Kind, nil
	}
}

// loads are the points of the shift with these loads.
func loads(ls ...float64) []Point {
	out := make([]Point, len(ls))
	for i, l := range ls {
		out[i] = Point{Load: l}
	}
	return out
}

// computation is how one bar is computed for one model.
type computation struct {
	statistic string
	run       func(ctx context.Context, e *Eval, model string) ([]Sample, error)
	// value sums up the samples.
	value func([]Sample) float64
}

// named are the load points that the first bar of the shift names; the second names
// none, and is taken at the same ones.
var named = []float64{0.75, 1, 1.5}

// against compares with one baseline at fixed points.
func against(scenario string, k Kind, points func(e *Eval) []Point) func(context.Context, *Eval, string) ([]Sample, error) {
	return func(ctx context.Context, e *Eval, model string) ([]Sample, error) {
		return e.grid(ctx, scenario, model, points(e), with(k))
	}
}

func fixed(ps ...Point) func(*Eval) []Point { return func(*Eval) []Point { return ps } }

func every(scenario string) func(*Eval) []Point {
	return func(e *Eval) []Point { return e.Set.Points(scenario) }
}

// computations are all bars, by scenario and the name in its file.
var computations = map[string]map[string]computation{
	Shift: {
		"vs_static_best_same_shared_tier": {"median over loads 0.75, 1, 1.5 and the seeds", against(Shift, StaticShared, fixed(loads(named...)...)), median},
		"vs_static_best_private_tier":     {"median over loads 0.75, 1, 1.5 and the seeds", against(Shift, StaticPrivate, fixed(loads(named...)...)), median},
		"vs_dynamo_like_start_a":          {"median over the seeds at load 1", against(Shift, DynamoA, fixed(loads(1)...)), median},
		"vs_dynamo_like_start_b":          {"median over the seeds at load 1", against(Shift, DynamoB, fixed(loads(1)...)), median},
		"worst_load_point_vs_best_baseline": {
			"smallest of the loads' medians over the seeds, against the baseline that is best at that load",
			func(ctx context.Context, e *Eval, model string) ([]Sample, error) {
				return e.grid(ctx, Shift, model, e.Set.Points(Shift), e.strongest(Shift, model))
			}, worst,
		},
	},
	Stationary: {
		"vs_static_best_same_shared_tier": {"median over the seeds", against(Stationary, StaticShared, every(Stationary)), median},
	},
	Oscillation: {
		"worst_period_vs_static_best": {
			"smallest of the periods' medians over the seeds; of turns/s and output tokens/s the worse ratio", against(Oscillation, StaticShared, every(Oscillation)), worst,
		},
		"period_1800": {
			"median over the seeds; of turns/s and output tokens/s the worse ratio", against(Oscillation, StaticShared, fixed(Point{Load: 1, PeriodS: 1800})), median,
		},
	},
	Overload: {
		"goodput_at_2x_share_of_peak": {"median over the seeds of goodput at twice the peak's sessions over goodput at the peak, both weir", overloaded, median},
	},
	Coding: {
		"vs_static_best_same_shared_tier": {"median over the seeds", against(Coding, StaticShared, every(Coding)), median},
	},
}

// overloaded compares weir at twice its peak with weir at its peak.
func overloaded(ctx context.Context, e *Eval, model string) ([]Sample, error) {
	i := slices.IndexFunc(e.Settings.Found, func(f Found) bool { return f.Scenario == Overload && f.Model == model && f.Arm.Kind == Weir })
	if i < 0 {
		return nil, fmt.Errorf("%w: no peak of overload with %s", ErrSettings, model)
	}
	at := e.Settings.Found[i]
	out := make([]Sample, len(e.Seeds))
	var fs []func() error
	for n, seed := range e.Seeds {
		fs = append(fs, func() error {
			job := Job{Scenario: Overload, Model: model, Derate: e.derate(), Point: at.Point, Seed: seed, Arm: Arm{Kind: Weir}}
			var one, two *sim.Figures
			err := Go(
				func() (err error) { one, err = e.Runner.Do(ctx, job); return err },
				func() (err error) { j := job; j.Concurrency *= 2; two, err = e.Runner.Do(ctx, j); return err },
			)
			if err != nil {
				return err
			}
			out[n] = Sample{
				Value: two.Goodput / one.Goodput, At: fmt.Sprintf("%d sessions, twice the peak", 2*at.Point.Concurrency), Seed: seed,
				Baseline: fmt.Sprintf("weir at its peak, %d sessions", at.Point.Concurrency), Share: round(at.Share), Weir: side(two), Base: side(one), point: at.Point,
			}
			return nil
		})
	}
	return out, Go(fs...)
}

func median(ss []Sample) float64 {
	xs := make([]float64, len(ss))
	for i, s := range ss {
		xs[i] = s.Value
	}
	sort.Float64s(xs)
	n := len(xs)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return xs[n/2]
	}
	return (xs[n/2-1] + xs[n/2]) / 2
}

// worst is the smallest median of a point.
func worst(ss []Sample) float64 {
	at := map[Point][]Sample{}
	for _, s := range ss {
		at[s.point] = append(at[s.point], s)
	}
	least := 0.0
	for _, list := range at { // a minimum: the order says nothing
		if m := median(list); least == 0 || m < least {
			least = m
		}
	}
	return least
}

// Names are the bars of a scenario, sorted: those that its file has.
func (s *Set) Names(scenario string) []string {
	out := make([]string, 0, len(s.Bars[scenario]))
	for n := range s.Bars[scenario] {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// Bars computes the bars of a scenario.
func (e *Eval) Bars(ctx context.Context, scenario string) ([]Line, error) {
	names := e.Set.Names(scenario)
	out := make([]Line, len(names))
	var fs []func() error
	for i, name := range names {
		fs = append(fs, func() (err error) {
			out[i], err = e.bar(ctx, scenario, name)
			return err
		})
	}
	return out, Go(fs...)
}

func (e *Eval) bar(ctx context.Context, scenario, name string) (Line, error) {
	c, ok := computations[scenario][name]
	if !ok {
		return Line{}, fmt.Errorf("scenarios: %s has a bar %q that nobody computes", scenario, name)
	}
	b := e.Set.Bars[scenario][name]
	l := Line{
		Name: scenario + "." + name, Unit: "ratio", Bar: b.Bar, Goal: b.Goal, Simulated: true, Models: map[string]float64{}, Derate: e.derate(),
		Statistic: c.statistic, Seeds: e.Seeds,
	}
	models := e.Set.Models(scenario)
	all := make([][]Sample, len(models))
	var fs []func() error
	for i, m := range models {
		fs = append(fs, func() (err error) {
			all[i], err = c.run(ctx, e, m)
			return err
		})
	}
	if err := Go(fs...); err != nil {
		return l, err
	}
	for i, m := range models {
		v := c.value(all[i])
		l.Models[m] = round(v)
		if l.Model == "" || v < l.Value {
			l.Value, l.Model, l.Samples = v, m, all[i]
		}
	}
	for i := range l.Samples {
		s := &l.Samples[i]
		if i == 0 || s.Value < l.Low {
			l.Low = s.Value
		}
		l.High = max(l.High, s.Value)
	}
	l.Met = l.Value >= l.Bar
	return l, nil
}
