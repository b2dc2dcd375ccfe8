package route

import (
	eventheap "container/heap"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// fakeCell is a small model of a cell around a router, to see what placement and
// admission bring: executors with a speed, one memory that forgets whole contexts, the
// least recently used first, and agents that wait between their turns. Decodes take the
// same time per token however many there are, and nothing is ever lost on the way.
type fakeCell struct {
	r      *Router
	rnd    *rand.Rand
	now    schemas.Time
	events fakeEvents
	count  int
	seq    uint64
	execs  []*fakeExec
	byID   map[string]*fakeExec
	turns  map[string]*fakeTurn

	memory   int // tokens that the node holds
	held     map[string]int
	used     []string // sessions, the least recently used first
	occupied int

	agent fakeAgent
	born  int
	poll  schemas.Time // refused agents come back so often; 0: when they were told to

	ended   []*fakeTurn
	refused []*fakeRefusal
	waits   map[string]*fakeRefusal // by session
}

type fakeAgent struct {
	turns, first, grow, output int     // turns: half as many to one and a half times as many
	wait                       float64 // seconds, mean
}

type fakeExec struct {
	id     string
	role   schemas.Role
	tps    float64
	step   schemas.Time // per token of a decode
	slots  int
	free   schemas.Time // when what is to be prefilled is done
	held   map[string]schemas.Held
	absorb schemas.SizeClass
}

type fakeTurn struct {
	s        *fakeSession
	ready    *schemas.Ready
	at       schemas.Time
	ttft     float64 // seconds
	end      schemas.Time
	computed int
}

type fakeSession struct {
	id    string
	turn  int
	turns int
	ctx   int
	since schemas.Time
}

type fakeRefusal struct {
	at    schemas.Time
	retry int64 // as it was first told
	room  schemas.Time
}

type fakeEvent struct {
	at  schemas.Time
	seq int
	do  func()
}

type fakeEvents []fakeEvent

func (h fakeEvents) Len() int { return len(h) }
func (h fakeEvents) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h fakeEvents) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *fakeEvents) Push(x any)   { *h = append(*h, x.(fakeEvent)) }
func (h *fakeEvents) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func newFakeCell(cfg Config, memory int, agent fakeAgent, execs ...*fakeExec) *fakeCell {
	cfg.Cell = "c0"
	c := &fakeCell{
		r: New(cfg), rnd: rand.New(rand.NewPCG(1, 2)), now: 1000 * second, byID: map[string]*fakeExec{}, turns: map[string]*fakeTurn{},
		memory: memory, held: map[string]int{}, agent: agent, execs: execs, waits: map[string]*fakeRefusal{},
	}
	for i, x := range execs {
		x.held, c.byID[x.id] = map[string]schemas.Held{}, x
		c.after(schemas.Time(i)*second/1000, func() { c.beat(x) })
	}
	c.after(0, c.tick)
	return c
}

func (c *fakeCell) after(d schemas.Time, do func()) {
	c.count++
	eventheap.Push(&c.events, fakeEvent{c.now + d, c.count, do})
}

// run lets so much time pass.
func (c *fakeCell) run(d schemas.Time) {
	for end := c.now + d; len(c.events) > 0 && c.events[0].at <= end; {
		e := eventheap.Pop(&c.events).(fakeEvent)
		c.now = e.at
		e.do()
	}
}

func (c *fakeCell) tick() {
	c.step(&schemas.Msg{Kind: schemas.KindTick})
	c.after(max(1, c.r.Next()-c.now), c.tick)
}

func (c *fakeCell) beat(x *fakeExec) {
	h := &schemas.Heartbeat{
		Header: schemas.H(), Executor: x.id, Boot: "b", Node: "n0", Pool: "m", Role: x.role, Slots: x.slots, Context: 200_000, Absorb: x.absorb,
		TierBlocks: c.memory / blockTokens, PrefillTPS: x.tps, DecodeTPS: float64(second) / float64(x.step),
	}
	for _, j := range x.held {
		h.Held = append(h.Held, j)
	}
	slices.SortFunc(h.Held, func(a, b schemas.Held) int { return len(a.Job) - len(b.Job) })
	c.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: h})
	c.after(second/2, func() { c.beat(x) })
}

func (c *fakeCell) step(m *schemas.Msg) {
	for _, o := range c.r.Step(c.now, m, nil) {
		switch o.Kind {
		case schemas.KindJob:
			s, err := schemas.ParseSubject(o.Subject)
			if err != nil {
				panic(err)
			}
			c.job(o.Job, c.byID[s.Get("executor")])
		case schemas.KindResult:
			c.failed(o.Result)
		default:
		}
	}
}

// begin starts so many agents within a second.
func (c *fakeCell) begin(agents int) {
	for range agents {
		c.after(schemas.Time(c.rnd.Int64N(int64(second))), c.next)
	}
}

// next is a new session in place of one that ended.
func (c *fakeCell) next() {
	c.born++
	c.turn(&fakeSession{id: fmt.Sprintf("s%d", c.born), turns: c.agent.turns/2 + c.rnd.IntN(c.agent.turns+1), since: c.now})
}

func (c *fakeCell) turn(s *fakeSession) {
	s.turn++
	c.seq++
	n := s.ctx + c.agent.grow
	if s.ctx == 0 {
		n = c.agent.first
	}
	id := fmt.Sprintf("u%d-%d", s.turn, c.seq)
	r := &schemas.Ready{
		Header: schemas.H(), Tenant: "t", Session: s.id, Turn: id, Branch: "main", Job: schemas.JobID("t", s.id, id), Pool: "m", MaxNew: 4096,
		Prompt: schemas.Prompt{N: n, TailFrom: s.ctx / blockTokens * blockTokens}, AdmittedNS: int64(c.now), ReadyNS: int64(c.now),
	}
	r.Prompt.Tail = make(schemas.Tokens, 1)
	c.turns[r.Job] = &fakeTurn{s: s, ready: r, at: c.now}
	c.step(&schemas.Msg{Kind: schemas.KindReady, Seq: c.seq, Ready: r})
}

func (c *fakeCell) job(j *schemas.Job, x *fakeExec) {
	t := c.turns[j.Ready.Job]
	if w := c.waits[t.s.id]; w != nil && w.room == 0 {
		w.room = c.now
	}
	x.held[j.Ready.Job] = schemas.Held{Job: j.Ready.Job, Attempt: j.Attempt, Stage: j.Stage}
	cached := 0
	if c.held[t.s.id] > 0 {
		cached = min(c.held[t.s.id], t.ready.Prompt.TailFrom)
		c.touch(t.s.id)
	}
	missing := t.ready.Prompt.N - cached
	if j.Stage == schemas.StageDecode && j.PrefillOn != "" {
		missing = 0
	}
	took := schemas.Time(float64(missing) / x.tps * float64(second))
	x.free = max(x.free, c.now) + took
	t.computed += missing
	c.after(x.free-c.now, func() {
		if j.Stage == schemas.StageDecode {
			c.decode(j, x, cached)
			return
		}
		delete(x.held, j.Ready.Job)
		if j.DecodeOn != "" {
			next := *j
			next.Stage, next.DecodeOn, next.PrefillOn, next.Cached = schemas.StageDecode, "", x.id, cached
			c.job(&next, c.byID[j.DecodeOn])
		}
		c.step(&schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{
			Header: schemas.H(), Job: j.Ready.Job, Attempt: j.Attempt, Stage: j.Stage, Executor: x.id, Outcome: schemas.OutcomePrefilled, PassedTo: j.DecodeOn,
			Cached: cached, Computed: missing, BusyNS: int64(took),
		}})
	})
}

func (c *fakeCell) decode(j *schemas.Job, x *fakeExec, cached int) {
	t := c.turns[j.Ready.Job]
	t.ttft = float64(c.now+x.step-t.at) / 1e9
	took := x.step * schemas.Time(c.agent.output)
	c.after(took, func() {
		delete(x.held, j.Ready.Job)
		delete(c.turns, j.Ready.Job)
		t.end = c.now
		c.ended = append(c.ended, t)
		on := j.PrefillOn
		if on == "" {
			on = x.id
		}
		c.store(t.s.id, t.ready.Prompt.N+c.agent.output)
		c.step(&schemas.Msg{Kind: schemas.KindResult, Result: &schemas.Result{
			Header: schemas.H(), Tenant: "t", Session: t.s.id, Turn: t.ready.Turn, Job: j.Ready.Job, Attempt: j.Attempt, Status: schemas.StatusOK,
			PrefillOn: on, DecodeOn: x.id, Usage: schemas.Usage{Prompt: t.ready.Prompt.N, Cached: cached, Completion: c.agent.output},
			Timing: schemas.Timing{DecodeNS: int64(took)},
		}})
		c.answered(t.s, t.ready.Prompt.N+c.agent.output)
	})
}

func (c *fakeCell) answered(s *fakeSession, ctx int) {
	s.ctx = ctx
	if s.turn >= s.turns {
		c.forget(s.id)
		c.step(&schemas.Msg{Kind: schemas.KindBranch, Branch: &schemas.BranchChange{
			Header: schemas.H(), Tenant: "t", Session: s.id, Branch: "main", State: schemas.BranchEnded, Why: "session_end",
		}})
		c.next()
		return
	}
	c.after(schemas.Time(c.rnd.ExpFloat64()*c.agent.wait*float64(second)), func() { c.turn(s) })
}

// failed takes a refusal: the agent comes back later.
func (c *fakeCell) failed(m *schemas.Result) {
	t := c.turns[m.Job]
	if t == nil {
		panic(fmt.Sprintf("%+v %+v", m, m.Failure))
	}
	delete(c.turns, m.Job)
	c.step(&schemas.Msg{Kind: schemas.KindPublished, Subject: schemas.ResultSubject(m.Tenant, m.Session, m.Turn)})
	if m.Failure.Code != schemas.CodeBusy {
		panic(m.Failure.Message)
	}
	if c.waits[m.Session] == nil {
		w := &fakeRefusal{at: c.now, retry: m.Failure.RetryNS}
		c.waits[m.Session] = w
		c.refused = append(c.refused, w)
	}
	t.s.turn--
	back := c.poll
	if back == 0 {
		back = schemas.Time(m.Failure.RetryNS)
	}
	c.after(back, func() { c.turn(t.s) })
}

func (c *fakeCell) touch(id string) {
	i := slices.Index(c.used, id)
	c.used = append(slices.Delete(c.used, i, i+1), id)
}

func (c *fakeCell) forget(id string) {
	if i := slices.Index(c.used, id); i >= 0 {
		c.used = slices.Delete(c.used, i, i+1)
		c.occupied -= c.held[id]
		delete(c.held, id)
	}
}

func (c *fakeCell) store(id string, tokens int) {
	c.forget(id)
	c.held[id] = tokens
	c.used = append(c.used, id)
	for c.occupied += tokens; c.occupied > c.memory && len(c.used) > 1; {
		c.forget(c.used[0])
	}
}

// goodput is turns a second whose first token came within two seconds, of those that
// ended since then.
func (c *fakeCell) goodput(since schemas.Time) (good, all float64) {
	for _, t := range c.ended {
		if t.end < since {
			continue
		}
		all++
		if t.ttft <= 2 {
			good++
		}
	}
	s := float64(c.now-since) / 1e9
	return good / s, all / s
}
