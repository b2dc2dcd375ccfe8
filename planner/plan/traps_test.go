package plan_test

import (
	"math"
	"slices"
	"testing"

	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
)

// Traps into which planners in the field fell. The numbers are those of the public
// issues; where none is given, the input is the smallest that shows it.

// changes counts role changes in decisions after a time.
func (c *fakeCell) changes(after float64) (n int) {
	for _, p := range c.plans {
		if p.Rule != "absorb" && float64(p.AtNS-1_000_000_000)/1e9 > after {
			n += len(p.Changes)
		}
	}
	return n
}

// floors fails when a phase has nobody, while run.
func (c *fakeCell) runChecked(t *testing.T, seconds float64) {
	t.Helper()
	for range int(seconds) {
		c.run(1)
		if p, d := c.roles(); p < 1 || d < 1 {
			t.Fatalf("at %.0f s %d prefill and %d decode; last decision: %+v", c.seconds(), p, d, c.last())
		}
	}
}

// TestBudgetFull: the number of executors is fixed and one side asks for more
// (dynamo #12428, and its proportional clamp that never gains a prefill worker).
func TestBudgetFull(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 9, 4, computerUse(always(900)))
	c.runChecked(t, 120)
	p, d := c.roles()
	if p+d != 9 || p < 6 {
		t.Errorf("computer use on 9 executors ends at %d:%d, want at least 6 that prefill and 9 in all", p, d)
	}
	for _, m := range c.plans {
		for _, x := range m.Candidates {
			if x.Prefill+x.Decode != 9 {
				t.Fatalf("a candidate of %d:%d for 9 executors", x.Prefill, x.Decode)
			}
		}
	}
}

// TestOutage: the metrics are cut for 60 s (dynamo #14575: dropped below its floors).
func TestOutage(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 9, 4, math1000(always(300)), computerUse(always(600)))
	c.runChecked(t, 120)
	c.onReport = func(*schemas.Report) bool { return false }
	c.onLoad = func(*schemas.Load) bool { return false }
	c.runChecked(t, 10)
	before, at := c.changes(0), c.seconds()
	c.runChecked(t, 50)
	if n := c.changes(0); n != before {
		t.Errorf("%d role changes in an outage", n-before)
	}
	if m := c.last(); m.Rule != "stale" {
		t.Errorf("the last rule in an outage is %s", m.Rule)
	}
	c.onReport, c.onLoad = nil, nil
	c.runChecked(t, 60)
	if !slices.ContainsFunc(c.plans, func(m *schemas.Plan) bool {
		return float64(m.AtNS-1_000_000_000)/1e9 > at+50 && m.Rule != "stale"
	}) {
		t.Error("no decision after the outage")
	}
}

// TestColdSamples: the first samples are 10 times slow (dynamo #12430: scaled decode up).
func TestColdSamples(t *testing.T) {
	for name, cfg := range map[string]plan.Config{"calibrated": {Model: glm()}, "measured": {}} {
		t.Run(name, func(t *testing.T) {
			run := func(slow bool) (prefill int, tail float64) {
				c := newCell(1, cfg, 9, 4, math1000(always(200)), computerUse(always(600)))
				for _, x := range c.execs {
					if slow && x.id > "e03" { // those that decode: five reports of 2 s
						x.slow = 10
					}
				}
				c.runChecked(t, 10)
				for _, x := range c.execs {
					x.slow = 0
				}
				c.runChecked(t, 230)
				p, _ := c.roles()
				return p, float64(c.finished["computer-use"])
			}
			calm, turns := run(false)
			slow, got := run(true)
			if math.Abs(float64(calm-slow)) > 1 || got < 0.9*turns {
				t.Errorf("with a slow start %d prefill and %.0f turns, without %d and %.0f", slow, got, calm, turns)
			}
		})
	}
}

// TestWaitingForExport: prefill executors are full of what waits for decode, which is the
// bottleneck (llm-d-autoscaling #1325: grew prefill).
func TestWaitingForExport(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 9, 7, math1000(always(1000)), computerUse(always(60)))
	c.runChecked(t, 180)
	p, d := c.roles()
	if p > 3 || d < 5 {
		t.Errorf("1,000 long answers end at %d:%d", p, d)
	}
	for _, m := range c.plans {
		for _, x := range m.Changes {
			if m.Inputs.BusyD > 0.9 && m.Inputs.BusyP < 0.3 && x.To == schemas.RolePrefill {
				t.Errorf("%s although decode is the bottleneck: %s", x.Executor, m.Reason)
			}
		}
	}
}

// TestThreshold: load that stays near where the best split changes (dynamo #9294: 2 to 1
// and back all the time).
func TestThreshold(t *testing.T) {
	worst := 0
	for _, n := range []int{300, 360, 420, 480, 540} {
		c := newCell(uint64(n), plan.Config{Model: glm()}, 9, 4, math1000(always(400)), computerUse(always(n)))
		c.runChecked(t, 600)
		worst = max(worst, c.changes(120))
	}
	if worst > 8 {
		t.Errorf("%d role changes in 8 min of unchanging load", worst)
	}
}

// TestStarving: one prefill, five decode, and prompts that are long (dynamo #7836: two decode
// executors starved).
func TestStarving(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 6, 1, computerUse(always(400)))
	c.runChecked(t, 60)
	if p, d := c.roles(); p < 3 {
		t.Errorf("a minute of computer use ends at %d:%d", p, d)
	}
}

// TestLastPrefill: the last prefill executor is flipped away by people and back (a
// known issue of dynamo 1.4: disaggregation stayed off). Between, somebody prefills.
func TestLastPrefill(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 3, 1, computerUse(always(60)))
	c.runChecked(t, 30)
	c.set("e00", schemas.RoleDecode, "ann")
	c.run(5)
	if p, d := c.roles(); p < 1 || d < 1 {
		t.Fatalf("5 s after the last prefill executor was set to decode: %d:%d, %+v", p, d, c.last())
	}
	if c.execs[0].role != schemas.RoleDecode {
		t.Errorf("the executor that ann set is %s again after 5 s", c.execs[0].role)
	}
	c.set("e00", schemas.RolePrefill, "ann")
	before := c.finished["computer-use"]
	c.runChecked(t, 30)
	if c.finished["computer-use"] == before {
		t.Error("no turn ended since")
	}
}

// TestStartOrder: executors without roles appear in any order, seconds apart (known
// issue: decode before prefill).
func TestStartOrder(t *testing.T) {
	for _, gap := range []float64{0, 0.5, 3, 10} {
		c := newCell(1, plan.Config{Model: glm()}, 0, -1, computerUse(always(30)))
		for _, id := range []string{"z", "a", "m", "b"} {
			c.add(id)
			c.run(gap)
		}
		c.run(15)
		if p, d := c.roles(); p < 1 || d < 1 || p+d < 4 {
			t.Errorf("4 executors %g s apart: %d prefill, %d decode", gap, p, d)
		}
		for _, x := range c.execs {
			if x.role == schemas.RoleStandby {
				t.Errorf("%g s apart: %s has no role", gap, x.id)
			}
		}
		before := c.finished["computer-use"]
		c.runChecked(t, 30)
		if c.finished["computer-use"] == before {
			t.Errorf("%g s apart: nothing ends", gap)
		}
	}
}

// TestLies: reports and loads that cannot be. The planner comes to the split that it comes
// to where all tell the truth.
func TestLies(t *testing.T) {
	nan := math.NaN()
	truth := newCell(1, plan.Config{Model: glm()}, 9, 4, math1000(always(300)), computerUse(always(600)))
	truth.runChecked(t, 240)
	p0, d0 := truth.roles()
	for name, lie := range map[string]struct {
		report func(c *fakeCell, r *schemas.Report)
		load   func(l *schemas.PoolLoad)
	}{
		"NaN":      {load: func(l *schemas.PoolLoad) { l.Attention, l.Context, l.Squares = nan, math.Inf(1), -1 }},
		"negative": {load: func(l *schemas.PoolLoad) { l.WaitPrefill, l.Decoding = -5, -1 }, report: func(_ *fakeCell, r *schemas.Report) { r.PrefillNS, r.KVUsed = -1, -7 }},
		"huge":     {load: func(l *schemas.PoolLoad) { l.Turns, l.Uncached = 1<<63, 1<<63 }, report: func(_ *fakeCell, r *schemas.Report) { r.PrefillTokens = 1 << 63; r.DecodeNS = 1 << 62 }},
		"back":     {report: func(c *fakeCell, r *schemas.Report) { r.AtNS = 5_000_000_000_000 - int64(c.now) }},
		"frozen": {report: func(_ *fakeCell, r *schemas.Report) {
			*r = schemas.Report{Header: r.Header, Executor: r.Executor, AtNS: r.AtNS}
		}},
		"restarted": {report: func(c *fakeCell, r *schemas.Report) {
			r.PrefillTokens %= 1000
			r.DecodeTokens %= 1000
			r.PrefillNS %= 1e9
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCell(1, plan.Config{Model: glm()}, 9, 4, math1000(always(300)), computerUse(always(600)))
			c.runChecked(t, 120)
			liars := 2
			c.onReport = func(r *schemas.Report) bool {
				if lie.report != nil && r.Executor < c.execs[liars].id {
					lie.report(c, r)
				}
				return true
			}
			turn := 0
			c.onLoad = func(l *schemas.Load) bool {
				if turn++; lie.load != nil && turn%2 == 0 {
					l.Pools = slices.Clone(l.Pools)
					lie.load(&l.Pools[0])
				}
				return true
			}
			c.runChecked(t, 120)
			p, d := c.roles()
			if math.Abs(float64(p-p0)) > 1 {
				t.Errorf("%d:%d, with the truth %d:%d; last: %+v", p, d, p0, d0, c.last())
			}
			for _, m := range c.plans {
				for _, f := range []float64{m.Inputs.DemandP, m.Inputs.BusyP, m.Inputs.KV, m.Inputs.BacklogP} {
					if math.IsNaN(f) || math.IsInf(f, 0) || f < 0 || f > 1e7 {
						t.Fatalf("a decision with %+v", m.Inputs)
					}
				}
			}
		})
	}
}

// TestLate: a change of roles that does not come into force is given up, the executor
// left alone, and the others go on, also where only one may change at a time.
func TestLate(t *testing.T) {
	for _, n := range []int{4, 6} {
		c := newCell(1, plan.Config{Model: glm()}, n, 1, computerUse(always(70*n)))
		stubborn := ""
		c.onAssign = func(x *fakeExec, a *schemas.Assignment) bool {
			if stubborn == "" && a.Role != x.role {
				stubborn = x.id // the first one that is asked rolls back, whenever it is asked
			}
			return x.id != stubborn || a.Role == x.role
		}
		c.runChecked(t, 150)
		if p, _ := c.roles(); p < n/2 {
			t.Errorf("one of %d that does not obey keeps %d from prefilling", n, n/2-p)
		}
		if got := c.p.Counts().GivenUp; got < 1 || got > 8 {
			t.Errorf("given up %d times", got)
		}
		if !slices.ContainsFunc(c.plans, func(m *schemas.Plan) bool { return m.Rule == "rolled_back" }) {
			t.Error("no decision says so")
		}
	}
}
