package churn

import (
	"cmp"
	"slices"

	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/schemas"
)

// statistics of a schedule, as the facts state them for traces.
type statistics struct {
	sessions, withSubs, screens int
	firstSub, lastSub           []float64 // tokens
	subCalls, fanOut            []float64
	prompts, out                []float64
	compactions                 []float64 // per session
	before, after, gap          []float64
	toolWaits, userWaits        []float64            // seconds, of all tools but "task", "search" and "computer"
	byTool                      map[string][]float64 // seconds
	rewrites, transitions       int
	dropped                     float64 // share of the tokens of answers
	background                  int
}

type lineKey struct{ session, line int32 }

func measure(s *workload.Schedule) statistics {
	st := statistics{byTool: map[string][]float64{}}
	last := map[lineKey]*workload.Call{}
	calls := map[lineKey]float64{}
	compacted, subs := make([]float64, len(s.Sessions)), make([]bool, len(s.Sessions))
	screen, first := make([]bool, len(s.Sessions)), map[lineKey]float64{}
	started := map[[2]int64]float64{} // sub-agents by session and time of their first call
	drop, out := 0.0, 0.0
	for i := range s.Calls {
		c := &s.Calls[i]
		if s.Sessions[c.Session].Tenant == "background" {
			st.background++
			continue
		}
		k := lineKey{c.Session, c.Line}
		p := last[k]
		st.prompts, st.out = append(st.prompts, float64(c.In)), append(st.out, float64(c.Out))
		drop, out = drop+float64(c.Dropped), out+float64(c.Out)
		switch {
		case p == nil && isSub(c):
			first[k] = float64(c.In)
			subs[c.Session] = true
			started[[2]int64{int64(c.Session), c.At}]++
		case p != nil:
			st.transition(p, c)
		}
		screen[c.Session] = screen[c.Session] || c.Tool == "computer"
		if first[k] > 0 {
			if calls[k]++; said(c, schemas.EventBranchEnd) {
				st.firstSub, st.lastSub = append(st.firstSub, first[k]), append(st.lastSub, float64(c.In))
				st.subCalls = append(st.subCalls, calls[k])
			}
		}
		if said(c, schemas.EventCompacted) && !screen[c.Session] && first[k] == 0 {
			compacted[c.Session]++
			st.before = append(st.before, float64(c.In))
		}
		last[k] = c
	}
	for i, x := range s.Sessions {
		if x.Tenant == "background" {
			continue
		}
		if st.sessions++; subs[i] {
			st.withSubs++
		}
		if screen[i] {
			st.screens++
		} else {
			st.compactions = append(st.compactions, compacted[i])
		}
	}
	for _, n := range started {
		st.fanOut = append(st.fanOut, n)
	}
	st.dropped = drop / out
	return st
}

// transition adds what lies between two calls of a line.
func (st *statistics) transition(p, c *workload.Call) {
	wait := float64(c.At-p.At-p.For) / 1e9
	if said(p, schemas.EventCompacted) {
		st.after = append(st.after, float64(c.In))
		st.gap = append(st.gap, wait+float64(p.For)/1e9)
		return
	}
	st.transitions++
	if common(p.Prompt, c.Prompt) < p.Blocks()*9/10 && p.In > 20_000 && c.In > p.In*9/10 && p.Tool != "computer" {
		st.rewrites++
	}
	switch {
	case p.Finish == workload.FinishTools:
		st.byTool[p.Tool] = append(st.byTool[p.Tool], wait)
		if p.Tool != "task" && p.Tool != "search" && p.Tool != "computer" {
			st.toolWaits = append(st.toolWaits, wait)
		}
	case said(p, schemas.EventUserWait):
		st.userWaits = append(st.userWaits, wait)
	}
}

func isSub(c *workload.Call) bool {
	return len(c.Prompt) > 0 && c.Prompt[0].From >= workload.Global+sharedSub*maxSystems*systemBlocks &&
		c.Prompt[0].From < workload.Global+sharedScreen*maxSystems*systemBlocks
}

func said(c *workload.Call, kind schemas.EventKind) bool {
	return slices.ContainsFunc(c.Say, func(y workload.Say) bool { return y.Kind == string(kind) })
}

// common is the number of blocks that two prompts begin with.
func common(a, b []workload.Run) (n int) {
	x, y := flat(a), flat(b)
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return n
}

func flat(rs []workload.Run) (out []int32) {
	for _, r := range rs {
		for i := range r.N {
			out = append(out, r.From+i)
		}
	}
	return out
}

func quantile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Clone(xs)
	slices.SortFunc(xs, cmp.Compare[float64])
	return xs[int(p*float64(len(xs)-1)+0.5)]
}

func mean(xs []float64) (m float64) {
	for _, x := range xs {
		m += x / float64(len(xs))
	}
	return m
}
