package replay

import (
	"fmt"

	"github.com/weir-dev/weir/kvtier/workload"
)

// step is one call with what a trace leaves open decided: which tokens stand behind
// the last whole block of its prompt, and which ones are its answer.
type step struct {
	*workload.Call
	prev int // the line's call before, or -1
	base int // the call whose messages it repeats: prev, or one of another line; or -1
	last bool
	// prompt are the blocks of the whole prompt, context those of prompt and answer as
	// later prompts repeat them. Their last block may be filled in part.
	prompt, context []workload.Run
	visible         int32        // tokens of the answer that later prompts repeat
	think           workload.Run // of its reasoning, where there is some
}

// script is a schedule, read twice: the answer of a call is what the next call of its
// line begins with, so calls are looked at from the last one on.
type script struct {
	*workload.Schedule
	steps []step
	ids   []int32 // next free id, by session
	// cuts are the blocks, by session, behind which some later prompt parts from a
	// context: there one message ended and another began.
	cuts []map[int32]bool
	kept map[int]bool // calls whose messages a call of another line repeats
}

func newScript(s *workload.Schedule) (*script, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	x := &script{
		Schedule: s, steps: make([]step, len(s.Calls)), ids: make([]int32, len(s.Sessions)), cuts: make([]map[int32]bool, len(s.Sessions)), kept: map[int]bool{},
	}
	for i := range x.ids {
		x.ids[i], x.cuts[i] = fresh, map[int32]bool{}
	}
	next, err := x.link()
	if err != nil {
		return nil, err
	}
	for i := len(x.steps) - 1; i >= 0; i-- {
		x.resolve(i, next[i])
	}
	for i := range x.steps {
		if st := &x.steps[i]; st.base >= 0 {
			ctx := x.steps[st.base].context
			if c := workload.Common(ctx, st.prompt); c > 0 && c < blocksOf(ctx) {
				x.cuts[st.Session][idAt(st.prompt, c-1)] = true
			}
		}
	}
	return x, nil
}

// link finds which call each one follows, and the call that goes on from each: the next
// one of its line, if that extends it, else the first one of another line that does.
func (x *script) link() (next []int, err error) {
	next = make([]int, len(x.steps))
	lines := map[[2]int32]int{}
	sessions := make([][]int, len(x.Sessions)) // last calls of its lines, oldest line first
	for i := range x.steps {
		st := &x.steps[i]
		st.Call, st.prev, st.base, next[i], st.last = &x.Calls[i], -1, -1, -1, true
		if st.In < 1 {
			return nil, fmt.Errorf("replay: %s: call %d has an empty prompt", x.Name, i)
		}
		for _, r := range st.Prompt {
			if r.From < workload.Global && r.From+r.N > fresh {
				return nil, fmt.Errorf("replay: %s: call %d has block id %d, a session's ids end at %d", x.Name, i, r.From+r.N-1, fresh-1)
			}
		}
		line := [2]int32{st.Session, st.Line}
		if p, ok := lines[line]; ok {
			st.prev, st.base, x.steps[p].last = p, p, false
			for k, q := range sessions[st.Session] {
				if q == p {
					sessions[st.Session][k] = i
				}
			}
		} else {
			st.base = x.origin(sessions[st.Session], st)
			sessions[st.Session] = append(sessions[st.Session], i)
		}
		lines[line] = i
	}
	for i := range x.steps {
		if st := &x.steps[i]; st.prev >= 0 && x.extends(i, st.prev) {
			next[st.prev] = i
		}
	}
	for i := range x.steps {
		if st := &x.steps[i]; st.prev < 0 && st.base >= 0 {
			x.kept[st.base] = true
			if next[st.base] < 0 && x.extends(i, st.base) {
				next[st.base] = i
			}
		}
	}
	return next, nil
}

// origin is the call, among the last ones of the session's other lines, with which a
// line's first prompt shares most; -1 when it shares nothing.
func (x *script) origin(calls []int, st *step) int {
	best, most := -1, 0
	for _, q := range calls {
		if c := workload.Common(x.steps[q].Prompt, st.Prompt); c > most {
			best, most = q, c
		}
	}
	return best
}

// extends: call i repeats all of call p and has more.
func (x *script) extends(i, p int) bool {
	a, b := x.steps[p].Call, x.steps[i].Call
	return b.In > a.In && workload.Common(a.Prompt, b.Prompt) == int(a.In)/blockTokens
}

// resolve decides the open ends of call i; next is the call that goes on from it.
func (x *script) resolve(i, next int) {
	st := &x.steps[i]
	think := st.Dropped
	st.visible = st.Out - think
	if next >= 0 {
		n := &x.steps[next]
		if grown := n.In - st.In; st.visible > grown {
			think, st.visible = think+st.visible-grown, grown
		}
		st.prompt, st.context = prefix(n.prompt, ceil(st.In)), prefix(n.prompt, ceil(st.In+st.visible))
	} else {
		st.prompt = x.grown(st.Session, st.Prompt, ceil(st.In))
		st.context = x.grown(st.Session, st.prompt, ceil(st.In+st.visible))
	}
	if n := ceil(think); n > 0 {
		st.think = x.fresh(st.Session, n)
	}
}

// fresh makes n ids that nothing else has.
func (x *script) fresh(session, n int32) workload.Run {
	r := workload.Run{From: x.ids[session], N: n}
	x.ids[session] += n
	return r
}

// grown is runs with fresh blocks behind them, blocks in all.
func (x *script) grown(session int32, runs []workload.Run, blocks int32) []workload.Run {
	n := blocks - int32(blocksOf(runs))
	if n <= 0 {
		return runs
	}
	return append(runs[:len(runs):len(runs)], x.fresh(session, n))
}

// ceil is the number of blocks that n tokens touch.
func ceil(n int32) int32 { return (n + blockTokens - 1) / blockTokens }

func blocksOf(runs []workload.Run) (n int) {
	for _, r := range runs {
		n += int(r.N)
	}
	return n
}

// prefix is the first n blocks of runs.
func prefix(runs []workload.Run, n int32) []workload.Run {
	for i, r := range runs {
		if r.N < n {
			n -= r.N
			continue
		}
		if r.N == n {
			return runs[: i+1 : i+1]
		}
		out := append(runs[:i:i], r)
		out[i].N = n
		return out
	}
	return runs
}

// idAt is the id of block i.
func idAt(runs []workload.Run, i int) int32 {
	for _, r := range runs {
		if i < int(r.N) {
			return r.From + int32(i)
		}
		i -= int(r.N)
	}
	return -1
}
