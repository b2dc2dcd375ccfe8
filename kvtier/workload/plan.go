package workload

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-dev/weir/schemas"
)

// PlanFormat is the first member of a written plan.
const PlanFormat = "weir.plan.v1"

// Half chooses sessions by their number: parameters are tuned on one half, figures
// come from the other.
type Half string

// The halves.
const (
	Odd  Half = "odd"
	Even Half = "even"
	Both Half = "both"
)

// PlanOptions say how recorded sessions become one load. Zero values are those of
// the defaults in brackets. Times are milliseconds.
type PlanOptions struct {
	Half       Half   `json:"half"`        // [both]
	Seed       uint64 `json:"seed"`        // of what is drawn
	Live       int    `json:"live"`        // sessions that run at any time [64]
	Calls      int    `json:"calls"`       // in all [12,000]
	MaxContext int    `json:"max_context"` // tokens; sessions with a longer prompt are left out [200,000]
	MaxThink   int64  `json:"max_think"`   // longer waits are cut [60,000]
	Spread     int64  `json:"spread"`      // within which the first sessions begin [60,000]
	Pause      int64  `json:"pause"`       // between a session's end and the next one in its place [30,000]
}

// WithDefaults fills in what is not set.
func (o PlanOptions) WithDefaults() PlanOptions {
	o.Half = cmp.Or(o.Half, Both)
	o.Live = cmp.Or(o.Live, 64)
	o.Calls = cmp.Or(o.Calls, 12_000)
	o.MaxContext = cmp.Or(o.MaxContext, 200_000)
	o.MaxThink = cmp.Or(o.MaxThink, 60_000)
	o.Spread = cmp.Or(o.Spread, 60_000)
	o.Pause = cmp.Or(o.Pause, 30_000)
	return o
}

func (o *PlanOptions) check() error {
	switch {
	case o.Half != Odd && o.Half != Even && o.Half != Both:
		return fmt.Errorf("workload: half is %q, known are odd, even and both", o.Half)
	case o.Live < 1 || o.Live > MaxSessions || o.Calls < 1 || o.Calls > MaxCalls || o.MaxContext < 1:
		return fmt.Errorf("workload: a plan of %d live sessions, %d calls and contexts up to %d tokens", o.Live, o.Calls, o.MaxContext)
	case o.MaxThink < 0 || o.Spread < 1 || o.Pause < 0:
		return fmt.Errorf("workload: a plan with times of %d, %d and %d ms", o.MaxThink, o.Spread, o.Pause)
	}
	return nil
}

// Place is one session of a plan: which recording runs, from which call on, and when.
type Place struct {
	ID    string `json:"id"`
	First int    `json:"first"` // index of its first call
	At    int64  `json:"at"`    // milliseconds from the start
}

// Plan is which recorded session runs when. It holds nothing of the recordings but
// their names, so it can be kept beside a test as what it measures.
type Plan struct {
	Format string      `json:"format"`
	Trace  string      `json:"trace"` // name of the trace that it is of
	Make   PlanOptions `json:"options"`
	Places []Place     `json:"places"`
}

// NewPlan draws a plan: Live sessions run at any time. Each of the first ones begins
// with a random call within Spread; when a session ends, the next one of a shuffled
// list takes its place after Pause, from its first call on. A list that is used up is
// shuffled again. Equal options give equal plans.
func NewPlan(trace string, recs []Recording, o PlanOptions) (*Plan, error) {
	o = o.WithDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	usable, err := o.usable(recs)
	if err != nil {
		return nil, err
	}
	if len(usable) == 0 {
		return nil, fmt.Errorf("workload: %s: no session of half %q has prompts of at most %d tokens", trace, o.Half, o.MaxContext)
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x706c616e))
	p := &Plan{Format: PlanFormat, Trace: trace, Make: o}
	var order []*Recording
	next := func() *Recording {
		if len(order) == 0 {
			order = slices.Clone(usable)
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		r := order[0]
		order = order[1:]
		return r
	}
	free := make([]int64, o.Live) // when the place of each live session is free
	var starts []int64            // of all calls
	add := func(slot int, r *Recording, first int, at int64) {
		p.Places = append(p.Places, Place{ID: r.ID, First: first, At: at})
		for i := first; i < len(r.Calls); i++ {
			starts = append(starts, at)
			at += r.gap(i, o.MaxThink)
		}
		free[slot] = at + o.Pause
	}
	for slot := range free {
		r := next()
		add(slot, r, rng.IntN(len(r.Calls)), rng.Int64N(o.Spread))
	}
	for {
		slot := 0
		for i := range free {
			if free[i] < free[slot] {
				slot = i
			}
		}
		before := 0
		for _, at := range starts {
			if at < free[slot] {
				before++
			}
		}
		if before >= o.Calls {
			return p, nil
		}
		add(slot, next(), 0, free[slot])
	}
}

// gap is the time from the start of call i to that of the next, or to its own end
// when it is the last.
func (r *Recording) gap(i int, maxThink int64) int64 {
	gap := r.Calls[i].Took
	if i+1 < len(r.Calls) {
		gap += min(r.Calls[i+1].Think, maxThink)
	}
	return gap
}

// usable are the recordings of the half that are short enough.
func (o *PlanOptions) usable(recs []Recording) (out []*Recording, err error) {
	for i := range recs {
		r := &recs[i]
		if o.Half != Both {
			n, err := strconv.Atoi(r.ID[strings.LastIndexByte(r.ID, '_')+1:])
			if err != nil {
				return nil, fmt.Errorf("workload: session %q has no number at its end, which tells odd from even ones; use both halves", r.ID)
			}
			if n%2 == 1 != (o.Half == Odd) {
				continue
			}
		}
		if !slices.ContainsFunc(r.Calls, func(c Recorded) bool { return int(c.In) > o.MaxContext }) {
			out = append(out, r)
		}
	}
	return out, nil
}

// Schedule is the plan's load: the first Calls calls of its sessions in the order of
// time. The agent says tool_wait or user_wait when an answer is there, and session_end
// behind its last one.
func (p *Plan) Schedule(recs []Recording) (*Schedule, error) {
	if p.Format != PlanFormat {
		return nil, fmt.Errorf("workload: format is %q, a plan has %q", p.Format, PlanFormat)
	}
	o := p.Make.WithDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	byID := make(map[string]*Recording, len(recs))
	for i := range recs {
		byID[recs[i].ID] = &recs[i]
	}
	s := &Schedule{Name: fmt.Sprintf("%s-%s-%d", p.Trace, o.Half, o.Seed), Seed: o.Seed}
	times := map[string]int{}
	for i, pl := range p.Places {
		r := byID[pl.ID]
		if r == nil || pl.First < 0 || pl.First >= len(r.Calls) || pl.At < 0 {
			return nil, fmt.Errorf("workload: place %d of the plan is call %d of session %q at %d ms, which the trace does not have; is it the trace %q?", i, pl.First, pl.ID, pl.At, p.Trace)
		}
		id := pl.ID
		if times[pl.ID]++; times[pl.ID] > 1 {
			id += "-" + strconv.Itoa(times[pl.ID])
		}
		s.Sessions = append(s.Sessions, Session{ID: id, Tenant: schemas.DefaultTenant})
		s.Calls = append(s.Calls, r.calls(int32(i), pl.First, pl.At, o.MaxThink)...)
	}
	slices.SortStableFunc(s.Calls, func(a, b Call) int { return cmp.Compare(a.At, b.At) })
	s.Calls = s.Calls[:min(len(s.Calls), o.Calls)]
	return s, s.Check()
}

const millisecond = 1_000_000 // nanoseconds

// calls are a recording's calls from first on, beginning at a time in milliseconds.
func (r *Recording) calls(session int32, first int, at, maxThink int64) []Call {
	var out []Call
	for i := first; i < len(r.Calls); i++ {
		c := &r.Calls[i]
		say := schemas.EventUserWait
		call := Call{
			At: at * millisecond, For: c.Took * millisecond, Session: session, In: c.In, Out: c.Out, Prompt: c.Prompt,
		}
		if c.Tools {
			say, call.Finish = schemas.EventToolWait, FinishTools
		}
		if i+1 == len(r.Calls) {
			say = schemas.EventSessionEnd
		} else {
			call.Dropped = c.dropped(&r.Calls[i+1])
		}
		call.Say = []Say{{Kind: string(say)}}
		out = append(out, call)
		at += r.gap(i, maxThink)
	}
	return out
}

// dropped is how much of an answer cannot be in the next prompt, which goes on where
// this one ended and has not grown by as much as was generated: reasoning. Where that
// is so, half of what it has grown by is taken as the rest of the answer.
func (c *Recorded) dropped(next *Recorded) int32 {
	grown := next.In - c.In
	if grown >= c.Out || grown < 0 || Common(c.Prompt, next.Prompt) < int(c.In)/BlockTokens {
		return 0
	}
	return c.Out - grown/2
}

// Common is how many leading blocks two prompts share.
func Common(a, b []Run) int {
	n := 0
	for i, j, x, y := 0, 0, int32(0), int32(0); i < len(a) && j < len(b) && a[i].From+x == b[j].From+y; {
		k := min(a[i].N-x, b[j].N-y)
		n += int(k)
		if x += k; x == a[i].N {
			i, x = i+1, 0
		}
		if y += k; y == b[j].N {
			j, y = j+1, 0
		}
	}
	return n
}
