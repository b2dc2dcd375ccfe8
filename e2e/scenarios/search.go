package scenarios

import (
	"context"
	"errors"
	"math"
	"sort"
	"sync"

	"github.com/weir-dev/weir/services/sim"
)

// Search tunes every baseline of every scenario.
//
// Reduced, it climbs over splits instead of running all of them: from a start to the
// better neighbour until there is none. At the first point of a baseline it then looks
// two splits to either side, so that a dent does not pass for the top; at other points
// it starts from the best of the point beside it. LeftOut lists the rest.
type Search struct {
	Set     *Set
	Runner  *Runner
	Seeds   []uint64
	Reduced bool
	// Baselines leaves out what depends on weir: overload's peak.
	Baselines bool

	mu     sync.Mutex
	failed []error
}

// fail notes a run that failed. The search goes on without it: one broken run must not
// cost hours of others.
func (s *Search) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, err)
}

// Failed are the runs that failed so far.
func (s *Search) Failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.failed...)
}

// tried is what a search knows of one setting: the mean over seeds.
type tried struct {
	arm   Arm
	score float64
	f     *sim.Figures // of the first seed
}

// point runs an arm at all seeds. Work that does not end in time, and a run that fails,
// is as bad as can be.
func (s *Search) point(ctx context.Context, j Job) (tried, error) {
	fs := make([]*sim.Figures, len(s.Seeds))
	var runs []func() error
	for i, seed := range s.Seeds {
		runs = append(runs, func() (err error) {
			one := j
			one.Seed = seed
			fs[i], err = s.Runner.Do(ctx, one)
			switch {
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return err
			case !errors.Is(err, sim.ErrTooLong):
				s.fail(err)
			}
			fs[i] = nil
			return nil
		})
	}
	if err := Go(runs...); err != nil {
		return tried{}, err
	}
	t := tried{arm: j.Arm, f: fs[0]}
	for _, f := range fs {
		if f == nil {
			t.score = math.Inf(-1)
			break
		}
		t.score += score(j.Scenario, f) / float64(len(fs))
	}
	return t, nil
}

// best finds the best of n settings 1 to n, where with makes a job of one. Reduced, it
// climbs from start and makes sure of the top by looking so far to either side; otherwise
// it runs all.
func (s *Search) best(ctx context.Context, n, start, reach int, with func(i int) Job) (best tried, all []tried, err error) {
	seen := map[int]tried{}
	at := func(is ...int) error {
		var fs []func() error
		got := make([]tried, len(is))
		for k, i := range is {
			if _, ok := seen[i]; ok || i < 1 || i > n {
				continue
			}
			fs = append(fs, func() (err error) {
				got[k], err = s.point(ctx, with(i))
				return err
			})
		}
		if err := Go(fs...); err != nil {
			return err
		}
		for k, i := range is {
			if got[k].arm.Kind != "" {
				seen[i] = got[k]
			}
		}
		return nil
	}
	top := min(max(start, 1), n)
	if s.Reduced {
		top, err = climb(top, n, reach, func(i int) float64 { return seen[i].score }, at)
	} else {
		list := make([]int, n)
		for i := range list {
			list[i] = i + 1
		}
		if err = at(list...); err == nil {
			for i := 1; i <= n; i++ {
				if seen[i].score > seen[top].score {
					top = i
				}
			}
		}
	}
	if err != nil {
		return best, nil, err
	}
	keys := make([]int, 0, len(seen))
	for i := range seen {
		keys = append(keys, i)
	}
	sort.Ints(keys)
	for _, i := range keys {
		all = append(all, seen[i])
	}
	return seen[top], all, nil
}

// climb returns the best of 1 to n that it finds from top on: none within far is better.
// at makes values known.
func climb(top, n, far int, value func(int) float64, at func(...int) error) (int, error) {
	for reach := 1; reach <= far; {
		if err := at(top-reach, top, top+reach); err != nil {
			return 0, err
		}
		better := top
		for _, i := range []int{top - reach, top + reach} {
			if i >= 1 && i <= n && value(i) > value(better) {
				better = i
			}
		}
		if better == top {
			reach++
			continue
		}
		top, reach = better, 1
	}
	return top, nil
}

// peak is the smallest concurrency of the grid at which weir's goodput is within 1 % of
// its best over the grid, and that best.
func peak(grid []int, goodput []float64) (concurrency int, best float64) {
	for _, g := range goodput {
		best = max(best, g)
	}
	for i, g := range goodput {
		if g >= 0.99*best {
			return grid[i], best
		}
	}
	return 0, 0
}
