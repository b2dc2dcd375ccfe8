package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
)

// fakeCell is a coarse cell around a real planner: agents in a closed loop, one queue
// before prefill, one before decode, executors that advance in steps of 100 ms, and a
// bus that loses nothing. It has no tier, no router policy and no links; services/sim
// has those. What it is for: the planner's inputs, and what becomes of its decisions.
type fakeCell struct {
	rng   *rand.Rand
	now   schemas.Time
	model demand.Model
	p     *plan.Planner

	execs   []*fakeExec
	classes []*fakeClass
	waitP   []*fakeTurn
	waitD   []*fakeTurn
	think   []*fakeTurn

	load     schemas.PoolLoad
	seq      uint64
	epochs   map[string]uint64
	plans    []*schemas.Plan
	flips    int
	finished map[string]int
	tokens   float64
	waits    []float64 // seconds before prefill ended, of turns that got there

	// Hooks change what is sent; false: it is lost.
	onReport func(*schemas.Report) bool
	onBeat   func(*schemas.Heartbeat) bool
	onLoad   func(*schemas.Load) bool
	onAssign func(*fakeExec, *schemas.Assignment) bool // false: the executor does not obey
}

type fakeExec struct {
	id     string
	pool   string
	role   schemas.Role
	epoch  uint64
	absorb schemas.SizeClass
	assign *schemas.Assignment
	seq    uint64 // of assign
	busy   schemas.Time
	size   float64
	slots  int
	kv     int
	slow   float64 // times slower than the model; 0: as the model
	dead   bool
	boot   int

	prefill []*fakeTurn
	decode  []*fakeTurn
	rep     schemas.Report
	hb      uint64
}

// fakeClass is one kind of agent.
type fakeClass struct {
	name    string
	target  func(t float64) int // sessions at once
	turns   [2]int
	tokens  func(*rand.Rand, int) float64 // to compute, by turn
	context func(turn int) float64
	output  func(*rand.Rand) float64
	think   func(*rand.Rand) float64
	alive   int
}

type fakeTurn struct {
	c           *fakeClass
	turn, of    int
	tokens, ctx float64
	work        float64 // prefill left
	output, got float64
	born, wake  schemas.Time
}

func lognormal(r *rand.Rand, median, sigma, most float64) float64 {
	return min(most, median*math.Exp(sigma*r.NormFloat64()))
}

func math1000(n func(float64) int) *fakeClass {
	return &fakeClass{
		name: "math", target: n, turns: [2]int{1, 1},
		tokens:  func(r *rand.Rand, _ int) float64 { return 300 + 700*r.Float64() },
		context: func(int) float64 { return 0 },
		output:  func(r *rand.Rand) float64 { return lognormal(r, 9000, 0.7, 32000) },
		think:   func(*rand.Rand) float64 { return 0 },
	}
}

func computerUse(n func(float64) int) *fakeClass {
	return &fakeClass{
		name: "computer-use", target: n, turns: [2]int{20, 59},
		tokens: func(r *rand.Rand, turn int) float64 {
			if turn == 0 {
				return 6000 + 3000*r.Float64()
			}
			return 2000 + 1500*r.Float64()
		},
		context: func(turn int) float64 { return math.Mod(7500+2750*float64(turn), 100_000) },
		output:  func(r *rand.Rand) float64 { return lognormal(r, 170, 0.6, 1500) },
		think:   func(r *rand.Rand) float64 { return lognormal(r, 3, 0.7, 120) },
	}
}

func always(n int) func(float64) int { return func(float64) int { return n } }

// glm is roughly GLM-5.2 on one worker of four GB300.
func glm() demand.Model {
	return demand.Model{
		Turn: 0.025, Token: 1.67e-5, Attention: 3.7e-11, Launch: 0.099, Context: 1.63e-10, Accept: 2.99,
		B: []float64{0, 4, 16, 32, 64, 128, 256}, Step: []float64{.020, .0213, .0275, .0293, .0313, .0341, .0408},
	}
}

func newCell(seed uint64, cfg plan.Config, n, prefill int, classes ...*fakeClass) *fakeCell {
	c := &fakeCell{
		rng: rand.New(rand.NewPCG(seed, 7)), now: 1_000_000_000, model: glm(), classes: classes,
		epochs: map[string]uint64{}, finished: map[string]int{}, seq: 100,
	}
	cfg.Cell, cfg.Epoch = "c0", 1
	c.p = plan.New(cfg)
	c.load.Pool = "m"
	for i := range n {
		x := c.add(fmt.Sprintf("e%02d", i))
		if prefill < 0 {
			continue
		}
		role := schemas.RoleDecode
		if i < prefill {
			role = schemas.RolePrefill
		}
		c.set(x.id, role, "up")
	}
	return c
}

func (c *fakeCell) add(id string) *fakeExec {
	x := &fakeExec{id: id, pool: "m", role: schemas.RoleStandby, size: 1, slots: 256, kv: 8_200_000, boot: 1}
	c.execs = append(c.execs, x)
	return x
}

// set writes an assignment as somebody.
func (c *fakeCell) set(id string, role schemas.Role, by string) {
	c.write(id, &schemas.Assignment{Header: schemas.H(), Role: role, By: by})
}

func (c *fakeCell) write(id string, a *schemas.Assignment) {
	c.seq++
	c.epochs[id] = c.seq
	for _, x := range c.execs {
		if x.id == id && (c.onAssign == nil || c.onAssign(x, a)) {
			x.assign, x.seq = a, c.seq
		}
	}
	c.send(&schemas.Msg{Kind: schemas.KindAssignment, Subject: schemas.RoleSubject("c0", id), Seq: c.seq, Assignment: a})
}

// send hands the planner a message, and does what it answers.
func (c *fakeCell) send(m *schemas.Msg) {
	for _, o := range c.p.Step(c.now, m, nil) {
		switch o.Kind {
		case schemas.KindPlan:
			if err := o.Plan.Check(); err != nil {
				panic(err)
			}
			c.plans = append(c.plans, o.Plan)
		case schemas.KindAssignment:
			s, err := schemas.ParseSubject(o.Subject)
			if err != nil {
				panic(err)
			}
			id := s.Get("executor")
			if o.ExpectSeq != c.epochs[id] {
				c.send(&schemas.Msg{Kind: schemas.KindPublished, Subject: o.Subject, ID: o.ID, Seq: c.epochs[id], Err: schemas.ErrTextConflict})
				continue
			}
			c.flips++
			c.write(id, o.Assignment)
			c.send(&schemas.Msg{Kind: schemas.KindPublished, Subject: o.Subject, ID: o.ID, Seq: c.epochs[id]})
		}
	}
}

const step = 100 * time.Millisecond

// run advances by so many seconds.
func (c *fakeCell) run(seconds float64) {
	end := c.now + schemas.Time(seconds*1e9)
	for c.now < end {
		c.now += schemas.Time(step)
		c.spawn()
		c.obey()
		c.place()
		c.advance(step.Seconds())
		c.talk()
		if c.now >= c.p.Next() {
			c.send(&schemas.Msg{Kind: schemas.KindTick})
		}
	}
}

func (c *fakeCell) seconds() float64 { return float64(c.now-1_000_000_000) / 1e9 }

func (c *fakeCell) spawn() {
	for _, k := range c.classes {
		for want := k.target(c.seconds()); k.alive < want; k.alive++ {
			c.turn(&fakeTurn{c: k, of: k.turns[0] + c.rng.IntN(k.turns[1]-k.turns[0]+1)})
		}
	}
	c.think = slices.DeleteFunc(c.think, func(t *fakeTurn) bool {
		if t.wake > c.now {
			return false
		}
		c.turn(t)
		return true
	})
}

func (c *fakeCell) turn(t *fakeTurn) {
	t.tokens, t.ctx, t.output, t.got, t.born = t.c.tokens(c.rng, t.turn), t.c.context(t.turn), t.c.output(c.rng), 0, c.now
	att := t.tokens * (t.ctx + t.tokens/2)
	t.work = c.model.Prefill(1, t.tokens, att)
	c.waitP = append(c.waitP, t)
	c.load.Turns++
	c.load.Uncached += uint64(t.tokens)
	c.load.Prompt += uint64(t.ctx + t.tokens)
	c.load.Attention += att
}

// obey lets executors take their assignments: what they hold goes back to the queues.
func (c *fakeCell) obey() {
	for _, x := range c.execs {
		if x.dead || x.assign == nil || x.seq == x.epoch {
			continue
		}
		was := x.role
		x.role, x.epoch, x.absorb = x.assign.Role, x.seq, x.assign.Absorb
		if was == x.role {
			continue
		}
		if !x.role.Takes(schemas.StagePrefill) {
			c.waitP, x.prefill = append(slices.Clone(x.prefill), c.waitP...), nil
		}
		cost := 36 * time.Millisecond
		if !x.role.Takes(schemas.StageDecode) {
			c.waitD, x.decode = append(slices.Clone(x.decode), c.waitD...), nil
			cost = 757 * time.Millisecond
		}
		x.busy = c.now + schemas.Time(cost)
		x.rep.Flips++
		x.rep.Flip = &schemas.Flip{Epoch: x.epoch, From: was, To: x.role, VerifyNS: int64(cost)}
	}
}

func (c *fakeCell) place() {
	for len(c.waitP) > 0 {
		var best *fakeExec
		for _, x := range c.execs {
			if x.open(c.now) && x.role.Takes(schemas.StagePrefill) && len(x.prefill) < 4 && (best == nil || len(x.prefill) < len(best.prefill)) {
				best = x
			}
		}
		if best == nil {
			break
		}
		best.prefill = append(best.prefill, c.waitP[0])
		c.waitP = c.waitP[1:]
	}
	for len(c.waitD) > 0 {
		var best *fakeExec
		for _, x := range c.execs {
			if x.open(c.now) && x.role.Takes(schemas.StageDecode) && len(x.decode) < x.slots && (best == nil || len(x.decode) < len(best.decode)) {
				best = x
			}
		}
		if best == nil {
			break
		}
		best.decode = append(best.decode, c.waitD[0])
		c.waitD = c.waitD[1:]
	}
}

func (x *fakeExec) open(now schemas.Time) bool { return !x.dead && x.busy <= now }

func (c *fakeCell) advance(dt float64) {
	for _, x := range c.execs {
		if !x.open(c.now) {
			continue
		}
		speed := x.size
		if x.slow > 0 {
			speed /= x.slow
		}
		share := 1.0
		if len(x.prefill) > 0 && len(x.decode) > 0 {
			share = 0.5
		}
		if n := len(x.prefill); n > 0 {
			left := dt * share * speed
			had := left
			for left > 1e-12 && len(x.prefill) > 0 {
				t := x.prefill[0]
				use := min(left, t.work)
				x.rep.PrefillTokens += uint64(t.tokens * use / max(c.model.Prefill(1, t.tokens, t.tokens*(t.ctx+t.tokens/2)), 1e-12))
				t.work -= use
				if left -= use; t.work <= 1e-12 {
					x.prefill = x.prefill[1:]
					c.waitD = append(c.waitD, t)
					c.waits = append(c.waits, float64(c.now-t.born)/1e9)
				}
			}
			x.rep.PrefillNS += int64((had - left) / speed * 1e9)
			x.rep.BusyNS += int64((had - left) / speed * 1e9)
		}
		if n := float64(len(x.decode)); n > 0 {
			k := 0.0
			for _, t := range x.decode {
				k += t.ctx + t.tokens + t.got
			}
			one := c.model.StepTime(n/x.size, k/x.size)
			if x.slow > 0 {
				one *= x.slow
			}
			steps := dt * share / one
			got := steps * c.model.Accept
			x.rep.DecodeNS += int64(dt * share * 1e9)
			x.rep.BusyNS += int64(dt * share * 1e9)
			x.rep.DecodeSteps += uint64(math.Round(steps))
			x.rep.DecodeRows += uint64(math.Round(steps)) * uint64(n)
			x.rep.DecodeTokens += uint64(got * n)
			x.rep.KVUsed = int(k)
			c.tokens += got * n
			x.decode = slices.DeleteFunc(x.decode, func(t *fakeTurn) bool {
				if t.got += got; t.got < t.output {
					return false
				}
				c.end(t)
				return true
			})
		}
	}
}

func (c *fakeCell) end(t *fakeTurn) {
	c.load.Ended++
	c.load.Output += uint64(t.output)
	c.load.Squares += t.output * t.output
	c.load.Context += t.output * (t.ctx + t.tokens + t.output/2)
	c.finished[t.c.name]++
	if t.turn++; t.turn >= t.of {
		t.c.alive--
		return
	}
	t.wake = c.now + schemas.Time(t.c.think(c.rng)*1e9)
	c.think = append(c.think, t)
}

// talk sends heartbeats and the load every 500 ms, reports every 2 s.
func (c *fakeCell) talk() {
	tick := int64(c.now) / int64(step)
	if tick%5 != 0 {
		return
	}
	prefilling, decoding := 0, 0
	for i, x := range c.execs {
		if x.dead {
			continue
		}
		prefilling += len(x.prefill)
		decoding += len(x.decode)
		c.beat(x)
		if (tick/5+int64(i))%4 == 0 {
			r := x.rep
			r.Header, r.Executor, r.Role, r.Epoch, r.AtNS = schemas.H(), x.id, x.role, x.epoch, int64(c.now)
			if c.onReport == nil || c.onReport(&r) {
				c.send(&schemas.Msg{Kind: schemas.KindReport, Subject: schemas.ReportSubject("c0", x.id), Report: &r})
			}
		}
	}
	l := c.load
	l.WaitPrefill, l.WaitDecode, l.Prefilling, l.Decoding = len(c.waitP), len(c.waitD), prefilling, decoding
	for _, t := range c.waitP {
		l.WaitTokens += int(t.tokens)
	}
	for _, x := range c.execs {
		for _, t := range x.decode {
			l.DecodeTokens += int(t.ctx + t.tokens)
		}
	}
	m := &schemas.Load{Header: schemas.H(), AtNS: int64(c.now), Router: 1, Pools: []schemas.PoolLoad{l}}
	if c.onLoad == nil || c.onLoad(m) {
		c.send(&schemas.Msg{Kind: schemas.KindLoad, Subject: schemas.LoadSubject("c0"), Load: m})
	}
}

func (c *fakeCell) beat(x *fakeExec) {
	x.hb++
	h := &schemas.Heartbeat{
		Header: schemas.H(), Executor: x.id, Boot: fmt.Sprintf("b%d", x.boot), Node: "n0", Pool: x.pool, Seq: x.hb, Role: x.role, Epoch: x.epoch,
		Absorb: x.absorb, Size: int(x.size), Slots: x.slots, Context: 200_000, KVTokens: x.kv,
	}
	for range x.prefill {
		h.Held = append(h.Held, schemas.Held{Stage: schemas.StagePrefill})
	}
	for range x.decode {
		h.Held = append(h.Held, schemas.Held{Stage: schemas.StageDecode})
	}
	if c.onBeat == nil || c.onBeat(h) {
		c.send(&schemas.Msg{Kind: schemas.KindHeartbeat, Subject: schemas.HBSubject("c0", x.id), Heartbeat: h})
	}
}

// kill ends an executor; what it held waits again.
func (c *fakeCell) kill(x *fakeExec) {
	x.dead = true
	c.waitP, x.prefill = append(slices.Clone(x.prefill), c.waitP...), nil
	c.waitD, x.decode = append(slices.Clone(x.decode), c.waitD...), nil
}

func (c *fakeCell) roles() (prefill, decode int) {
	for _, x := range c.execs {
		if x.dead {
			continue
		}
		switch x.role {
		case schemas.RolePrefill:
			prefill++
		case schemas.RoleDecode:
			decode++
		case schemas.RoleMixed:
			prefill++
			decode++
		}
	}
	return prefill, decode
}

func (c *fakeCell) last() *schemas.Plan {
	if len(c.plans) == 0 {
		return nil
	}
	return c.plans[len(c.plans)-1]
}
