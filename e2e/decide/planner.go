package decide

import (
	"fmt"
	"math"
	"time"

	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
)

// The pool of a cell, and the sequences that one of its executors holds.
const (
	model = "m"
	slots = 256
)

// planned is a cell around a planner.
type planned struct {
	name    string
	p       *plan.Planner
	now     schemas.Time
	start   schemas.Time
	seq     uint64
	execs   []*ruled
	load    schemas.PoolLoad
	took    []time.Duration // of steps in which it decides
	changes int
	out     []schemas.Msg
}

// ruled is an executor that obeys at its next heartbeat.
type ruled struct {
	id    string
	role  schemas.Role
	epoch uint64
	next  *schemas.Assignment
	ep    uint64
	rep   schemas.Report
}

// Planner measures decisions: the steps at the times that the planner asked for. It
// also returns how many roles changed, so that a planner that sleeps is not called fast.
func Planner(s Size) (Times, int, error) {
	cells := make([]*planned, s.Cells)
	for i := range cells {
		cells[i] = newPlanned(fmt.Sprintf("c%d", i), s.Executors)
	}
	for range 2 * s.Seconds {
		for _, c := range cells {
			c.half()
		}
	}
	var all []time.Duration
	changes := 0
	for _, c := range cells {
		all = append(all, c.took...)
		changes += c.changes
	}
	if len(all) < s.Cells*s.Seconds/2 {
		return Times{}, changes, fmt.Errorf("decide: %d planners decided %d times in %d seconds", s.Cells, len(all), s.Seconds)
	}
	return times(all), changes, nil
}

func newPlanned(name string, executors int) *planned {
	c := &planned{name: name, p: plan.New(plan.Config{Cell: name, Epoch: 1}), now: 1000e9, start: 1000e9, load: schemas.PoolLoad{Pool: model}}
	for i := range executors {
		x := &ruled{id: fmt.Sprintf("e%03d", i), role: schemas.RoleDecode}
		if i%2 == 0 {
			x.role = schemas.RolePrefill
		}
		c.seq++
		x.epoch = c.seq
		x.rep = schemas.Report{Header: schemas.H(), Executor: x.id}
		c.execs = append(c.execs, x)
		c.step(&schemas.Msg{Kind: schemas.KindAssignment, Subject: schemas.RoleSubject(name, x.id), Seq: x.epoch, Assignment: &schemas.Assignment{Header: schemas.H(), Role: x.role}})
	}
	return c
}

func (c *planned) step(m *schemas.Msg) {
	due := c.now >= c.p.Next()
	began := time.Now()
	c.out = c.p.Step(c.now, m, c.out[:0])
	took := time.Since(began)
	if due {
		c.took = append(c.took, took)
	}
	var answers []schemas.Msg
	for _, o := range c.out {
		if o.Kind != schemas.KindAssignment {
			continue
		}
		c.changes++
		c.seq++
		for _, x := range c.execs {
			if schemas.RoleSubject(c.name, x.id) == o.Subject {
				x.next, x.ep = o.Assignment, c.seq
			}
		}
		answers = append(answers, schemas.Msg{Kind: schemas.KindPublished, Subject: o.Subject, ID: o.ID, Seq: c.seq})
	}
	for i := range answers {
		c.step(&answers[i])
	}
}

// half lets half a second pass: heartbeats, the router's load, and every two seconds
// reports. Work swings between the two phases every two minutes.
func (c *planned) half() {
	c.now += 5e8
	t := float64(c.now-c.start) / 1e9
	share := 0.5 + 0.35*math.Sin(2*math.Pi*t/240) // of prefill
	n := float64(len(c.execs))
	for _, x := range c.execs {
		if x.next != nil {
			x.role, x.epoch, x.next = x.next.Role, x.ep, nil
		}
		c.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
			Header: schemas.H(), Executor: x.id, Boot: "b", Node: "n0", Pool: model, Role: x.role, Epoch: x.epoch, Size: 4, Slots: slots, Context: 262_144, KVTokens: 8_000_000,
		}})
	}
	l := &c.load
	turns := uint64(n)
	l.Turns, l.Ended = l.Turns+turns, l.Ended+turns
	uncached := uint64(n * share * 25_000 / 2)
	output := uint64(n * (1 - share) * 3_000)
	l.Prompt, l.Uncached, l.Attention = l.Prompt+turns*30_000, l.Uncached+uncached, l.Attention+float64(uncached)*20_000
	l.Output, l.Context = l.Output+output, l.Context+float64(output)*30_000
	l.WaitPrefill, l.WaitTokens, l.Decoding, l.DecodeTokens = int(n*share*4), int(n*share*4*3000), int(n*60), int(n*60*30_000)
	c.step(&schemas.Msg{Kind: schemas.KindLoad, Load: &schemas.Load{Header: schemas.H(), AtNS: int64(c.now), Router: 1, Pools: []schemas.PoolLoad{*l}}})
	if int64(c.now-c.start)%2e9 == 0 {
		for _, x := range c.execs {
			c.report(x)
		}
	}
	if c.now >= c.p.Next() {
		c.step(&schemas.Msg{Kind: schemas.KindTick})
	}
}

// report is that of an executor that was busy.
func (c *planned) report(x *ruled) {
	r := &x.rep
	r.Role, r.Epoch, r.AtNS = x.role, x.epoch, int64(c.now)
	r.BusyNS += 1.8e9
	if x.role == schemas.RolePrefill {
		r.PrefillNS += 1.8e9
		r.PrefillTokens += 90_000
		r.Queued, r.Running, r.KVUsed = 4, 4, 100_000
	} else {
		r.DecodeNS += 1.8e9
		r.DecodeSteps += 50
		r.DecodeRows += 50 * 60
		r.DecodeTokens += 9_000
		r.Queued, r.Running, r.KVUsed = 0, 60, 1_800_000
	}
	one := *r
	c.step(&schemas.Msg{Kind: schemas.KindReport, Report: &one})
}
