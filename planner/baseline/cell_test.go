package baseline

import (
	"fmt"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

const second = schemas.Time(1e9)

// cell is a small world around a planner: executors that take roles after a delay, a
// router's load, and the ROLE stream.
type cell struct {
	t     *testing.T
	actor schemas.Actor
	now   schemas.Time
	execs []*exec
	seq   uint64
	load  schemas.PoolLoad
	plans []*schemas.Plan
	start int64 // seconds that a role change takes
	// report changes what an executor reports; nil for nothing.
	report func(e *exec, r *schemas.Report)
	silent bool // no reports
}

type exec struct {
	id     string
	role   schemas.Role
	epoch  uint64
	next   schemas.Role
	nextAt schemas.Time
	nextEp uint64
	last   uint64 // sequence on its subject
	roles  int
}

func newCell(t *testing.T, a schemas.Actor, roles ...schemas.Role) *cell {
	c := &cell{t: t, actor: a, now: 1000 * second, load: schemas.PoolLoad{Pool: "m"}}
	for i, r := range roles {
		e := &exec{id: fmt.Sprintf("e%d", i), role: r}
		c.execs = append(c.execs, e)
		if r != schemas.RoleStandby {
			c.seq++
			e.epoch, e.last = c.seq, c.seq
			c.step(&schemas.Msg{Kind: schemas.KindAssignment, Subject: schemas.RoleSubject("c0", e.id), Seq: c.seq, Assignment: &schemas.Assignment{Role: r}})
		}
	}
	return c
}

func (c *cell) step(m *schemas.Msg) {
	for _, o := range c.actor.Step(c.now, m, nil) {
		switch o.Kind {
		case schemas.KindPlan:
			if err := o.Plan.Check(); err != nil {
				c.t.Errorf("plan %+v: %v", o.Plan, err)
			}
			c.plans = append(c.plans, o.Plan)
		case schemas.KindAssignment:
			c.assign(&o)
		default:
			c.t.Errorf("published kind %d", o.Kind)
		}
	}
}

func (c *cell) assign(o *schemas.Msg) {
	for _, e := range c.execs {
		if schemas.RoleSubject("c0", e.id) != o.Subject {
			continue
		}
		reply := &schemas.Msg{Kind: schemas.KindPublished, Subject: o.Subject, ID: o.ID}
		if !o.ExpectSet || o.ExpectSeq != e.last {
			reply.Err = schemas.ErrTextConflict
		} else {
			c.seq++
			e.last, e.next, e.nextEp, e.nextAt = c.seq, o.Assignment.Role, c.seq, c.now+schemas.Time(c.start)*second
			e.roles++
			reply.Seq = c.seq
		}
		c.step(reply)
	}
}

// run lets so many seconds pass, with heartbeats and reports every second.
func (c *cell) run(seconds int) {
	for range seconds {
		c.now += second
		for _, e := range c.execs {
			if e.next != "" && c.now >= e.nextAt {
				e.role, e.epoch, e.next = e.next, e.nextEp, ""
			}
			if e.next != "" && c.start > 0 {
				continue // it restarts
			}
			c.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
				Executor: e.id, Boot: fmt.Sprint("b", e.roles), Node: "n0", Pool: "m", Role: e.role, Epoch: e.epoch, Size: 4, Slots: 256, Context: 100_000, KVTokens: 8_000_000,
			}})
			if c.silent {
				continue
			}
			r := &schemas.Report{Executor: e.id, Role: e.role, Epoch: e.epoch, AtNS: int64(c.now)}
			if c.report != nil {
				c.report(e, r)
			}
			c.step(&schemas.Msg{Kind: schemas.KindReport, Report: r})
		}
		c.step(&schemas.Msg{Kind: schemas.KindLoad, Load: &schemas.Load{AtNS: int64(c.now), Router: 1, Pools: []schemas.PoolLoad{c.load}}})
		c.step(&schemas.Msg{Kind: schemas.KindTick})
	}
}

// split counts the roles that the ROLE stream says.
func (c *cell) split() string {
	n := map[schemas.Role]int{}
	for _, e := range c.execs {
		r := e.role
		if e.next != "" {
			r = e.next
		}
		n[r]++
	}
	s := fmt.Sprintf("%d:%d", n[schemas.RolePrefill], n[schemas.RoleDecode])
	if n[schemas.RoleStandby] > 0 {
		s += fmt.Sprintf("+%d", n[schemas.RoleStandby])
	}
	return s
}

func roles(p, d int) []schemas.Role {
	var out []schemas.Role
	for range p {
		out = append(out, schemas.RolePrefill)
	}
	for range d {
		out = append(out, schemas.RoleDecode)
	}
	return out
}

// full makes all decode executors report so full a memory.
func full(share float64) func(*exec, *schemas.Report) {
	return func(e *exec, r *schemas.Report) {
		if e.role == schemas.RoleDecode {
			r.KVUsed, r.Running = int(share*8_000_000), 100
		} else {
			r.Queued = 1
		}
	}
}
