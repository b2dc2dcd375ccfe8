package scenarios

import (
	"context"
	"math"
	"slices"
)

// Swept and LeftOut say what a search varies and what a reduced one does not look at.
func (s *Search) Swept() (swept, leftOut []string) {
	swept = []string{
		"static, both tiers: how many of the workers prefill",
		"dynamo-like, start a: the split that is best for the first phase alone (private tier); start b: best for the whole run; target throughput, sla with its throughput loop, sla with both loops",
		"dynamo-like: restart 240 s in every figure; with weir's router at load 1 beside it, and 5, 60 and 120 s in a full search",
		"aggregated: 4, 8, 16 or 32 decode steps between two prefill steps, at the first point (load 1)",
		"overload: the smallest concurrency at which weir's goodput is within 1 % of its most",
	}
	if !s.Reduced {
		return swept, nil
	}
	return swept, []string{
		"seeds beyond the first",
		"splits that a climb from the best of the neighbouring point does not reach; two beyond the best are looked at on either side at the first point only",
		"shift: private tier at loads below 0.75, dynamo-like at loads other than 1",
		"private tier, dynamo-like and aggregated in all but the shift: no bar names them",
		"dynamo-like, start b: splits are looked at with the loops that are best at the private tier's best split; restarts other than 240 s",
		"oscillation: splits are chosen by two periods, and 600 s at least; the figures are of the whole",
		"hbm-only, derate 0.75, target latency",
	}
}

// One searches one scenario.
func (s *Search) One(ctx context.Context, scenario string) ([]Found, error) {
	models := s.Set.Models(scenario)
	parts := make([][]Found, len(models))
	var fs []func() error
	for i, model := range models {
		fs = append(fs, func() (err error) {
			switch scenario {
			case Shift:
				parts[i], err = s.shift(ctx, model)
			case Overload:
				parts[i], err = s.overload(ctx, model)
			default:
				parts[i], err = s.mixes(ctx, scenario, model)
			}
			return err
		})
	}
	err := Go(fs...)
	return slices.Concat(parts...), err
}

// All searches one scenario after the other. After each, done gets what was found so far.
func (s *Search) All(ctx context.Context, scenarios []string, st *Settings, done func(scenario string, st *Settings) error) error {
	st.Schema, st.Seeds, st.Reduced, st.Hash, st.Files = SettingsSchema, s.Seeds, s.Reduced, s.Set.Hash(), s.Set.Hashes
	st.Swept, st.LeftOut = s.Swept()
	for _, scenario := range scenarios {
		if s.Baselines && scenario == Overload {
			continue
		}
		found, err := s.One(ctx, scenario)
		if err != nil {
			return err
		}
		st.Found = slices.DeleteFunc(st.Found, func(f Found) bool { return f.Scenario == scenario })
		st.Found = append(st.Found, found...)
		st.shares()
		if err := done(scenario, st); err != nil {
			return err
		}
	}
	return s.Failed()
}

// mixes tunes the baselines of a scenario by time at each of its points.
func (s *Search) mixes(ctx context.Context, scenario, model string) ([]Found, error) {
	kinds := []Kind{StaticShared}
	if !s.Reduced {
		kinds = append(kinds, StaticPrivate)
	}
	points := s.Set.Points(scenario)
	var out [][]Found
	var fs []func() error
	add := func(f func() ([]Found, error)) {
		i := len(out)
		out = append(out, nil)
		fs = append(fs, func() (err error) {
			out[i], err = f()
			return err
		})
	}
	for _, k := range kinds {
		add(func() ([]Found, error) { return s.splits(ctx, scenario, model, k, points) })
	}
	if !s.Reduced {
		add(func() ([]Found, error) { return s.aggregated(ctx, scenario, model, points) })
	}
	if !s.Reduced {
		add(func() ([]Found, error) { return s.plain(ctx, scenario, model, Arm{Kind: HBMOnly, Prefill: 6}, points) })
	}
	err := Go(fs...)
	return slices.Concat(out...), err
}

// splits tunes a static split at each point, from the best of the point before on.
func (s *Search) splits(ctx context.Context, scenario, model string, k Kind, points []Point) ([]Found, error) {
	return s.chain(ctx, scenario, model, k, s.Set.Scenarios[scenario].Cluster.Workers*2/3, 2, points)
}

// chain goes from point to point; reach is how far the first one looks around its best.
func (s *Search) chain(ctx context.Context, scenario, model string, k Kind, at, reach int, points []Point) ([]Found, error) {
	n := s.Set.Scenarios[scenario].Cluster.Workers - 1
	var out []Found
	for _, p := range points {
		short := s.short(scenario, p)
		best, all, err := s.best(ctx, n, at, reach, func(i int) Job {
			return Job{Scenario: scenario, Model: model, ForS: short, Derate: 1, Point: p, Arm: Arm{Kind: k, Prefill: i}}
		})
		if err == nil && short > 0 {
			best, err = s.point(ctx, Job{Scenario: scenario, Model: model, Derate: 1, Point: p, Arm: best.arm})
		}
		if err != nil {
			return out, err
		}
		at, reach = best.arm.Prefill, 1
		out = append(out, found(scenario, model, p, best, all))
	}
	return out, nil
}

// short is how long, in seconds, a reduced search runs an oscillation to choose a split by:
// two periods, and 600 s at least; 0 for the whole scenario.
func (s *Search) short(scenario string, p Point) float64 {
	if d := max(2*p.PeriodS, 600); s.Reduced && scenario == Oscillation && d < s.Set.Scenarios[scenario].DurationS {
		return d
	}
	return 0
}

// plain runs an arm without settings at each point.
func (s *Search) plain(ctx context.Context, scenario, model string, a Arm, points []Point) ([]Found, error) {
	out := make([]Found, len(points))
	var fs []func() error
	for i, p := range points {
		fs = append(fs, func() error {
			t, err := s.point(ctx, Job{Scenario: scenario, Model: model, Derate: 1, Point: p, Arm: a})
			out[i] = found(scenario, model, p, t, nil)
			return err
		})
	}
	return out, Go(fs...)
}

// mixSteps are the chunkings of aggregated that are tried.
var mixSteps = []int{4, 8, 16, 32}

// aggregated tunes the chunking at the first point and keeps it.
func (s *Search) aggregated(ctx context.Context, scenario, model string, points []Point) ([]Found, error) {
	all := make([]tried, len(mixSteps))
	var fs []func() error
	for i, n := range mixSteps {
		fs = append(fs, func() (err error) {
			all[i], err = s.point(ctx, Job{Scenario: scenario, Model: model, Derate: 1, Point: points[0], Arm: Arm{Kind: Aggregated, MixSteps: n}})
			return err
		})
	}
	if err := Go(fs...); err != nil {
		return nil, err
	}
	best := top(all)
	rest, err := s.plain(ctx, scenario, model, best.arm, points[1:])
	return append([]Found{found(scenario, model, points[0], best, all)}, rest...), err
}

// shift tunes the baselines of the shift. Loads are looked at from 1 outwards, so that
// each starts from the best of its neighbour.
func (s *Search) shift(ctx context.Context, model string) ([]Found, error) {
	var down, up []Point
	for _, p := range s.Set.Points(Shift) {
		if p.Load <= 1 {
			down = append([]Point{p}, down...)
		} else {
			up = append(up, p)
		}
	}
	all := append(slices.Clone(down), up...)
	low := down // all loads up to 1
	var shared, private, agg, dyn []Found
	err := Go(
		func() (err error) { shared, err = s.outward(ctx, model, StaticShared, low, up); return err },
		func() (err error) {
			if s.Reduced { // at low loads it is no better than the shared tier, and no bar names it there
				down = slices.DeleteFunc(slices.Clone(down), func(p Point) bool { return p.Load < named[0] })
			}
			if private, err = s.outward(ctx, model, StaticPrivate, down, up); err != nil {
				return err
			}
			dyn, err = s.dynamo(ctx, model, private[0].Arm.Prefill, all)
			return err
		},
		func() (err error) { agg, err = s.aggregated(ctx, Shift, model, all); return err },
	)
	return slices.Concat(shared, private, agg, dyn), err
}

func (s *Search) outward(ctx context.Context, model string, k Kind, down, up []Point) ([]Found, error) {
	out, err := s.splits(ctx, Shift, model, k, down)
	if err != nil {
		return nil, err
	}
	rest, err := s.chain(ctx, Shift, model, k, out[0].Arm.Prefill, 1, up)
	return append(out, rest...), err
}

// restarts are swept beside RestartS.
var restarts = []float64{5, 60, 120}

// dynamo tunes both starts of the dynamo-like policy. start is where the climb for start
// b begins; points[0] is load 1.
func (s *Search) dynamo(ctx context.Context, model string, start int, points []Point) ([]Found, error) {
	n := s.Set.Scenarios[Shift].Cluster.Workers - 1
	loops := []Loops{LoopsThroughput, LoopsSLA, LoopsBoth}
	if !s.Reduced {
		loops = append(loops, LoopsLatency)
	}
	tuned := points
	if s.Reduced {
		tuned = points[:1]
	}
	var out []Found
	for _, p := range tuned {
		first, _, err := s.best(ctx, n, 1, 2, func(i int) Job {
			return Job{Scenario: Shift, Model: model, First: true, Derate: 1, Point: p, Arm: Arm{Kind: StaticPrivate, Prefill: i}}
		})
		if err != nil {
			return nil, err
		}
		a, err := s.startA(ctx, model, p, first.arm.Prefill, loops)
		if err != nil {
			return nil, err
		}
		b, err := s.startB(ctx, model, p, n, start, loops)
		if err != nil {
			return nil, err
		}
		if p == points[0] {
			if err := s.restarts(ctx, model, p, &a, &b); err != nil {
				return nil, err
			}
		}
		out = append(out, a, b)
	}
	return out, nil
}

func (s *Search) startA(ctx context.Context, model string, p Point, split int, loops []Loops) (Found, error) {
	all := make([]tried, len(loops))
	var fs []func() error
	for i, l := range loops {
		fs = append(fs, func() (err error) {
			all[i], err = s.point(ctx, Job{Scenario: Shift, Model: model, Derate: 1, Point: p, Arm: Arm{Kind: DynamoA, Prefill: split, Loops: l, RestartS: RestartS}})
			return err
		})
	}
	err := Go(fs...)
	return found(Shift, model, p, top(all), all), err
}

// startB tunes loops and split together; reduced, the loops at the split where it starts,
// and then the split with the best of them.
func (s *Search) startB(ctx context.Context, model string, p Point, n, start int, loops []Loops) (Found, error) {
	job := func(k int, l Loops) Job {
		return Job{Scenario: Shift, Model: model, Derate: 1, Point: p, Arm: Arm{Kind: DynamoB, Prefill: k, Loops: l, RestartS: RestartS}}
	}
	var more []tried
	if s.Reduced {
		more = make([]tried, len(loops))
		var fs []func() error
		for i, l := range loops {
			fs = append(fs, func() (err error) { more[i], err = s.point(ctx, job(start, l)); return err })
		}
		if err := Go(fs...); err != nil {
			return Found{}, err
		}
		best := top(more).arm.Loops
		more = slices.DeleteFunc(more, func(t tried) bool { return t.arm.Loops == best })
		loops = []Loops{best}
	}
	bests, alls := make([]tried, len(loops)), make([][]tried, len(loops))
	var fs []func() error
	for i, l := range loops {
		fs = append(fs, func() (err error) {
			bests[i], alls[i], err = s.best(ctx, n, start, 2, func(k int) Job { return job(k, l) })
			return err
		})
	}
	err := Go(fs...)
	return found(Shift, model, p, top(bests), append(more, slices.Concat(alls...)...)), err
}

// restarts adds what shorter restarts, and weir's router, would bring to the two starts.
func (s *Search) restarts(ctx context.Context, model string, p Point, fs ...*Found) error {
	var runs []func() error
	for _, f := range fs {
		shorter := restarts
		if s.Reduced {
			shorter = nil
		}
		more := make([]tried, len(shorter)+1)
		for i := range more {
			arm := f.Arm
			if i < len(shorter) {
				arm.RestartS = shorter[i]
			} else {
				arm.WeirRouter = true
			}
			runs = append(runs, func() (err error) {
				more[i], err = s.point(ctx, Job{Scenario: Shift, Model: model, Derate: 1, Point: p, Arm: arm})
				return err
			})
		}
		defer func() { f.Tried = append(f.Tried, tries(more)...) }()
	}
	return Go(runs...)
}

// concurrencies are where overload looks for weir's peak.
var concurrencies = []int{200, 400, 600, 800, 1000, 1200, 1400, 1600}

func (s *Search) overload(ctx context.Context, model string) ([]Found, error) {
	all := make([]tried, len(concurrencies))
	goodput := make([]float64, len(concurrencies))
	var fs []func() error
	for i, n := range concurrencies {
		fs = append(fs, func() (err error) {
			all[i], err = s.point(ctx, Job{Scenario: Overload, Model: model, Derate: 1, Point: Point{Load: 1, Concurrency: n}, Arm: Arm{Kind: Weir}})
			if all[i].f != nil {
				goodput[i] = all[i].f.Goodput
			}
			return err
		})
	}
	if err := Go(fs...); err != nil {
		return nil, err
	}
	n, most := peak(concurrencies, goodput)
	i := slices.Index(concurrencies, n)
	if i < 0 {
		return nil, nil
	}
	f := found(Overload, model, Point{Load: 1, Concurrency: n}, all[i], nil)
	f.Share = goodput[i] / most
	for k, c := range concurrencies {
		f.Tried = append(f.Tried, Tried{Concurrency: c, Score: goodput[k]})
	}
	return []Found{f}, nil
}

func top(ts []tried) tried {
	best := ts[0]
	for _, t := range ts[1:] {
		if t.score > best.score {
			best = t
		}
	}
	return best
}

func found(scenario, model string, p Point, t tried, all []tried) Found {
	f := Found{Scenario: scenario, Model: model, Point: p, Arm: t.arm, Tried: tries(all)}
	if t.f != nil {
		f.MakespanS, f.TurnsPerS, f.TokPerS = round(t.f.MakespanS), round(t.f.TurnsPerS), round(t.f.TokPerS)
	}
	return f
}

func tries(ts []tried) []Tried {
	var out []Tried
	for _, t := range ts {
		one := Tried{Prefill: t.arm.Prefill, Loops: t.arm.Loops, WeirRouter: t.arm.WeirRouter, MixSteps: t.arm.MixSteps, Score: round(t.score)}
		if t.arm.RestartS != RestartS {
			one.Restart = t.arm.RestartS
		}
		if math.IsInf(t.score, -1) {
			one.Score, one.Long = 0, true
		}
		out = append(out, one)
	}
	return out
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }
