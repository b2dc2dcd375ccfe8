package evict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/kvtier/replay"
	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/kvtier/workload/churn"
)

// Options size an experiment on generated churn. The zero value is the short form: in
// seconds of one core some 15 for Churn, 50 for BadHints, 70 for Ablation, and 60 for
// a ChurnSweep of eight capacities.
type Options struct {
	Seeds []uint64 // of the schedules; 1
	Calls int      // of each schedule; 2,500, some 22 minutes of 64 agents
	// Capacities are in tokens; 3, 4 and 5 M for Churn, 1 to 8 M for ChurnSweep, and
	// 3 M, somewhat less than the agents' contexts, for BadHints and Ablation.
	Capacities []int64
}

// Long is the long form: three seeds of an hour each.
func Long() Options {
	return Options{Seeds: []uint64{1, 2, 3}, Calls: 20_000, Capacities: []int64{2e6, 3e6, 4e6, 5e6, 6e6}}
}

// filled sets what is not set.
func (o Options) filled(capacities ...int64) Options {
	if len(o.Seeds) == 0 {
		o.Seeds = []uint64{1}
	}
	if o.Calls == 0 {
		o.Calls = 2500
	}
	if len(o.Capacities) == 0 {
		o.Capacities = capacities
	}
	return o
}

func (o Options) schedule(seed uint64) (*workload.Schedule, error) {
	p := churn.Default()
	p.MaxCalls = o.Calls
	return churn.Generate(p, seed)
}

// each calls f for 0 … n-1 on all cores, and returns all errors.
func each(ctx context.Context, n int, f func(i int) error) error {
	errs, next := make([]error, n), make(chan int)
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = f(i)
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// Sweep replays a log under several policies and capacities, in tokens. The results
// come by capacity, then in the order of the policies, with the gaps closed.
func Sweep(ctx context.Context, l *replay.Log, policies []replay.Policy, capacities []int64) ([]*replay.Result, error) {
	out := make([]*replay.Result, len(policies)*len(capacities))
	err := each(ctx, len(out), func(i int) (err error) {
		out[i], err = replay.Run(l, policies[i%len(policies)], capacities[i/len(policies)])
		return err
	})
	if err != nil {
		return nil, err
	}
	replay.Compare(out)
	return out, nil
}

// SweepChart is the hit rate over the capacity, one line per policy.
func SweepChart(title string, rs []*replay.Result) *Chart {
	c := &Chart{Title: title, X: "capacity, M tokens", Y: "token hit rate"}
	for _, r := range rs {
		name := string(r.Policy)
		if r.Mode == replay.Inferred && r.Policy == replay.Weir {
			name = "weir, inferred"
		}
		i := slices.IndexFunc(c.Series, func(s Series) bool { return s.Name == name })
		if i < 0 {
			i = len(c.Series)
			c.Series = append(c.Series, Series{Name: name})
		}
		s := &c.Series[i]
		s.X, s.Y = append(s.X, float64(r.Capacity)/1e6), append(s.Y, r.HitRate)
	}
	return c
}

// ChurnSweep is a sweep of one schedule of churn, the agents' words heard and inferred.
func ChurnSweep(ctx context.Context, o Options) ([]*replay.Result, error) {
	o = o.filled(1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6, 8e6)
	s, err := o.schedule(o.Seeds[0])
	if err != nil {
		return nil, err
	}
	parts := [][]replay.Policy{replay.Policies(), {replay.Weir}}
	results := make([][]*replay.Result, len(parts))
	err = each(ctx, len(parts), func(i int) error {
		l, err := replay.Record(s, []replay.Mode{replay.Explicit, replay.Inferred}[i])
		if err != nil {
			return err
		}
		results[i], err = Sweep(ctx, l, parts[i], o.Capacities)
		return err
	})
	return slices.Concat(results...), err
}

// Churn measures which share of the gap between LRU and Belady is closed on churn, as
// figures evict.churn.<capacity>.gap_closed: the median of the seeds.
func Churn(ctx context.Context, o Options) ([]show.Figure, error) {
	o = o.filled(3e6, 4e6, 5e6)
	policies := []replay.Policy{replay.Weir, replay.LRU, replay.Belady}
	bySeed := make([][]*replay.Result, len(o.Seeds))
	for i, seed := range o.Seeds {
		s, err := o.schedule(seed)
		if err != nil {
			return nil, err
		}
		l, err := replay.Record(s, replay.Explicit)
		if err != nil {
			return nil, err
		}
		if bySeed[i], err = Sweep(ctx, l, policies, o.Capacities); err != nil {
			return nil, err
		}
	}
	var out []show.Figure
	for c, capacity := range o.Capacities {
		name := "evict.churn." + millions(capacity)
		for p, policy := range policies {
			rate := medianOf(bySeed, func(rs []*replay.Result) float64 { return rs[c*len(policies)+p].HitRate })
			out = append(out, show.Figure{Name: name + "." + string(policy), Value: rate, Unit: "ratio"})
		}
		gap := medianOf(bySeed, func(rs []*replay.Result) float64 { return gapOf(rs[c*len(policies)]) })
		out = append(out, show.Figure{Name: name + ".gap_closed", Value: gap, Unit: "ratio"})
	}
	return out, nil
}

// gapOf is the share of the gap that a result closes; 1 where there is no gap.
func gapOf(r *replay.Result) float64 {
	if r.GapClosed == nil {
		return 1
	}
	return *r.GapClosed
}

func millions(tokens int64) string {
	return fmt.Sprintf("%gM", float64(tokens)/1e6)
}

func medianOf[T any](xs []T, f func(T) float64) float64 {
	vs := make([]float64, len(xs))
	for i, x := range xs {
		vs[i] = f(x)
	}
	slices.SortFunc(vs, cmp.Compare[float64])
	n := len(vs)
	return (vs[(n-1)/2] + vs[n/2]) / 2
}
