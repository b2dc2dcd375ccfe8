package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
)

// TestUnfit: an executor that its report calls unfit is out of work within 10 s, and back when it
// is fit. The last of a phase gets a successor first; with nobody else it stays.
func TestUnfit(t *testing.T) {
	for name, n := range map[string][2]int{"one of three": {9, 3}, "the last that prefills": {3, 1}, "one of two": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			c := newCell(1, plan.Config{Model: glm()}, n[0], n[1], computerUse(always(20*n[0])))
			c.runChecked(t, 30)
			i := slices.IndexFunc(c.execs, func(x *fakeExec) bool { return x.role == schemas.RolePrefill })
			sick := c.execs[i]
			c.onReport = func(r *schemas.Report) bool {
				if r.Executor == sick.id {
					r.Unfit = "XID 79"
				}
				return true
			}
			c.runChecked(t, 10)
			if sick.role != schemas.RoleStandby {
				t.Fatalf("after 10 s it is %s; last: %s", sick.role, c.last().Reason)
			}
			c.onReport = nil
			c.runChecked(t, 20)
			if sick.role == schemas.RoleStandby {
				t.Errorf("fit for 20 s, still out of work")
			}
		})
	}
	t.Run("nobody else", func(t *testing.T) {
		c := newCell(1, plan.Config{Model: glm()}, 1, -1, computerUse(always(5)))
		c.run(10)
		c.onReport = func(r *schemas.Report) bool { r.Unfit = "XID 79"; return true }
		c.runChecked(t, 20)
	})
}

// TestDeath: executors that end are no part of the split, and a phase that lost its last
// one gets another. They come back with the role that stands on ROLE.
func TestDeath(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 4, 1, computerUse(always(60)))
	c.runChecked(t, 20)
	i := slices.IndexFunc(c.execs, func(x *fakeExec) bool { return x.role == schemas.RolePrefill })
	for _, x := range c.execs {
		if x.role == schemas.RolePrefill {
			c.kill(x)
		}
	}
	c.run(6)
	if p, d := c.roles(); p < 1 || d < 1 {
		t.Fatalf("6 s after all prefill executors ended: %d:%d", p, d)
	}
	x := c.execs[i]
	x.dead, x.boot = false, 2
	c.runChecked(t, 30)
}

// TestPins: pinned executors stay, and roles that people set stay for a while.
func TestPins(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 9, 4, computerUse(always(900)))
	for _, x := range c.execs[5:] {
		c.write(x.id, &schemas.Assignment{Header: schemas.H(), Role: schemas.RoleDecode, By: "ann", Pinned: true})
	}
	c.runChecked(t, 120)
	for _, x := range c.execs[5:] {
		if x.role != schemas.RoleDecode {
			t.Errorf("%s is pinned to decode and became %s", x.id, x.role)
		}
	}
	if p, d := c.roles(); p != 5 || d != 4 {
		t.Errorf("%d:%d, want 5:4: all that may prefill", p, d)
	}
	if !slices.ContainsFunc(c.plans, func(m *schemas.Plan) bool {
		return m.Rule == "pinned" && strings.Contains(m.Reason, "e05 is pinned by ann")
	}) {
		t.Error("no decision says that pins hold it back")
	}
}

// TestModes: advice publishes nothing but decisions and adds up what it would have brought; a
// paused planner changes nothing but what is unfit; act goes on.
func TestModes(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm(), Mode: schemas.ModeAdvise}, 9, 2, computerUse(always(900)))
	c.runChecked(t, 120)
	if c.flips != 0 {
		t.Fatalf("%d assignments by advice", c.flips)
	}
	i := slices.IndexFunc(c.plans, func(m *schemas.Plan) bool { return len(m.Changes) > 0 })
	if i < 0 || c.last().Advised <= 0 {
		t.Errorf("no advice in %d decisions, or no value of it: %+v", len(c.plans), c.last())
	}
	mode := func(m schemas.Mode, seq uint64) {
		c.send(&schemas.Msg{Kind: schemas.KindMode, Subject: schemas.ModeSubject("c0"), Seq: seq, Mode: &schemas.PlannerMode{Header: schemas.H(), Mode: m}})
	}
	mode(schemas.ModePaused, 5)
	c.runChecked(t, 30)
	if c.flips != 0 || c.last().Rule != "paused" {
		t.Errorf("paused: %d assignments, rule %s", c.flips, c.last().Rule)
	}
	c.onReport = func(r *schemas.Report) bool {
		if r.Executor == "e05" {
			r.Unfit = "too hot"
		}
		return true
	}
	c.runChecked(t, 10)
	if c.execs[5].role != schemas.RoleStandby {
		t.Error("paused: an unfit executor stays in work")
	}
	mode(schemas.ModeAct, 4) // older than the pause
	if c.p.Mode() != schemas.ModePaused {
		t.Error("an older mode replaced a newer one")
	}
	mode(schemas.ModeAct, 6)
	c.runChecked(t, 60)
	if p, _ := c.roles(); p < 4 {
		t.Errorf("acting for a minute: %d prefill", p)
	}
}

// TestPools: each pool is planned by itself, and executors of one never go to another's work.
func TestPools(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 9, 4, computerUse(always(900)))
	for i := range 4 {
		x := c.add("q" + string(rune('0'+i)))
		x.pool = "other"
	}
	c.runChecked(t, 60)
	n := 0
	for _, m := range c.plans {
		if m.Pool == "other" {
			n++
			for _, x := range m.Changes {
				if x.Executor[0] != 'q' {
					t.Errorf("pool other changes %s", x.Executor)
				}
			}
		}
	}
	if n == 0 {
		t.Error("no decision for the second pool")
	}
}

// TestSizes: executors of unequal size count by their size.
func TestSizes(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 6, 2, computerUse(always(500)))
	for i, x := range c.execs {
		if i%2 == 1 {
			x.size, x.slots, x.kv = 2, 512, 16_400_000
		}
	}
	c.runChecked(t, 90)
	size := 0.0
	for _, x := range c.execs {
		if x.role == schemas.RolePrefill {
			size += x.size
		}
	}
	if size < 5 {
		t.Errorf("size %g of 9 prefills computer use, want at least 5", size)
	}
}

// TestUnpressed: light work changes no roles.
func TestUnpressed(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 9, 4, computerUse(always(20)))
	c.runChecked(t, 300)
	if n := c.changes(0); n != 0 {
		t.Errorf("%d role changes for 20 agents on 9 executors", n)
	}
}

// TestReturn: a planner that restarts from its snapshot does what it would have done.
func TestReturn(t *testing.T) {
	mk := func() *fakeCell {
		return newCell(3, plan.Config{Model: glm()}, 9, 4, math1000(always(300)), computerUse(func(s float64) int { return 300 + 300*(int(s/50)%2) }))
	}
	a, b := mk(), mk()
	for range 6 {
		a.run(47.3)
		b.run(47.3)
		snap, err := b.p.Snapshot(nil)
		if err != nil {
			t.Fatal(err)
		}
		b.p = plan.New(plan.Config{Cell: "c0", Epoch: 1, Model: glm()})
		if err := b.p.Restore(snap); err != nil {
			t.Fatal(err)
		}
		again, err := b.p.Snapshot(nil)
		if err != nil || string(again) != string(snap) {
			t.Fatalf("a snapshot of what was restored differs (%v)", err)
		}
	}
	if len(a.plans) != len(b.plans) {
		t.Fatalf("%d decisions, with restarts %d", len(a.plans), len(b.plans))
	}
	for i := range a.plans {
		x, _ := schemas.Encode(a.plans[i])
		y, _ := schemas.Encode(b.plans[i])
		if string(x) != string(y) {
			t.Fatalf("decision %d differs:\n%s\n%s", i, x, y)
		}
	}
	if err := plan.New(plan.Config{}).Restore([]byte(`{"v":99}`)); err != nil {
		t.Errorf("a snapshot of another version: %v", err)
	}
	if err := plan.New(plan.Config{}).Restore([]byte(`{`)); err == nil {
		t.Error("half a snapshot was taken")
	}
}

// TestBounds: names that come and go do not pile up.
func TestBounds(t *testing.T) {
	p := plan.New(plan.Config{Cell: "c0", MaxExecutors: 10, MaxPools: 3})
	for i := range 1000 {
		id := "x" + string(rune('a'+i%26)) + string(rune('a'+i/26%26))
		p.Step(schemas.Time(i+1), &schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{Executor: id, Boot: id, Pool: id}}, nil)
	}
	if n := p.Counts().Ignored; n < 900 {
		t.Errorf("%d of 1,000 names were ignored, 10 are allowed", n)
	}
}

// TestAbsorb: while decode has room, its executors may compute larger prompts themselves; those
// of an engine that takes long for them may not.
func TestAbsorb(t *testing.T) {
	slow := glm()
	slow.Token *= 100
	for name, x := range map[string]struct {
		model  demand.Model
		agents int
		want   schemas.SizeClass
	}{"fast": {glm(), 100, schemas.SizeM}, "slow": {slow, 5, schemas.SizeS}} {
		t.Run(name, func(t *testing.T) {
			c := newCell(1, plan.Config{Model: x.model}, 6, 3, computerUse(always(x.agents)))
			c.runChecked(t, 120)
			for _, e := range c.execs {
				if got := e.absorb; e.role == schemas.RoleDecode && got != x.want && (got != "" || x.want != schemas.SizeS) {
					t.Errorf("%s may absorb %q, want %s", e.id, got, x.want)
				}
			}
		})
	}
}

// TestConflict: of two writers one is refused, and the planner takes what stands.
func TestConflict(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 9, 2, computerUse(always(900)))
	for _, x := range c.execs {
		c.epochs[x.id] += 1000 // somebody wrote what the planner has not read yet
	}
	c.runChecked(t, 30)
	if c.flips != 0 || c.p.Counts().Refused == 0 {
		t.Errorf("%d assignments were taken, %d refused", c.flips, c.p.Counts().Refused)
	}
	c.seq += 2000
	for _, x := range c.execs {
		c.set(x.id, x.role, "")
	}
	c.runChecked(t, 60)
	if p, _ := c.roles(); p < 5 {
		t.Errorf("a minute after it read them, %d prefill", p)
	}
}

// TestBusAway: while NATS is away nothing is decided, and nobody is taken for dead when it is back.
func TestBusAway(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 4, 2, computerUse(always(60)))
	c.runChecked(t, 30)
	n := len(c.plans)
	c.send(&schemas.Msg{Kind: schemas.KindBus, Err: "gone"})
	beats := false
	c.onBeat = func(*schemas.Heartbeat) bool { return beats }
	c.run(30)
	if len(c.plans) != n {
		t.Errorf("%d decisions without a bus", len(c.plans)-n)
	}
	beats = true
	c.send(&schemas.Msg{Kind: schemas.KindBus})
	c.runChecked(t, 10)
	if got := c.changes(30); got != 0 {
		t.Errorf("%d role changes because the bus was away", got)
	}
}

// TestRouterNumbers: loads of a router before the known one do not count while that one
// is heard; when it has gone, or its number was wrong, those of the one that is there do.
func TestRouterNumbers(t *testing.T) {
	c := newCell(1, plan.Config{}, 4, 2, math1000(always(8)))
	c.run(20)
	bad := c.p.Counts().BadLoads
	c.send(&schemas.Msg{Kind: schemas.KindLoad, Load: &schemas.Load{Header: schemas.H(), AtNS: int64(c.now), Router: 1 << 62}})
	c.run(2)
	if got := c.p.Counts().BadLoads; got == bad {
		t.Error("loads of an earlier router were taken beside those of a later one")
	}
	c.run(10)
	bad = c.p.Counts().BadLoads
	c.run(10)
	if got := c.p.Counts().BadLoads; got != bad {
		t.Errorf("%d loads of the only router there is were not taken", got-bad)
	}
}
