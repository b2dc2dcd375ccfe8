package plan_test

import (
	"strings"
	"testing"

	"github.com/weir-dev/weir/planner/flip"
	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
)

// TestUnreadable: an assignment that cannot be read does not reach the planner, but stands
// on ROLE. The refusal of its next write tells its sequence, and the one after replaces it.
func TestUnreadable(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 9, 1, computerUse(always(900)))
	for _, x := range c.execs {
		c.seq++
		c.epochs[x.id] = c.seq // of a later version, so that executors stay what they are
	}
	c.runChecked(t, 90)
	if p, _ := c.roles(); p < 4 {
		t.Errorf("%d of 9 prefill after a minute that asks for most; refused %d times", p, c.p.Counts().Refused)
	}
}

// TestOvertaken: what people write at the same moment as the planner is read before the
// planner writes again, although its refusal told the sequence.
func TestOvertaken(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 9, 1, computerUse(always(900)))
	for _, x := range c.execs {
		c.seq++
		c.epochs[x.id] = c.seq
	}
	before := c.flips
	for c.p.Counts().Refused == 0 && c.seconds() < 60 {
		c.run(0.1)
	}
	for _, x := range c.execs {
		c.write(x.id, &schemas.Assignment{Header: schemas.H(), Role: x.role, By: "ann", Pinned: true})
	}
	c.run(30)
	if c.flips != before {
		t.Errorf("%d executors changed that people had pinned", c.flips-before)
	}
}

// TestWiped: executors that began anew and found nothing on ROLE, because the stream lost
// it, get their roles again, and stay pinned if they were.
func TestWiped(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 4, 2, computerUse(always(20)))
	c.write("e00", &schemas.Assignment{Header: schemas.H(), Role: schemas.RolePrefill, By: "ann", Pinned: true})
	c.run(20)
	roles := map[string]schemas.Role{}
	for _, x := range c.execs {
		roles[x.id] = x.role
		x.role, x.epoch, x.assign, x.boot, x.rep = schemas.RoleStandby, 0, nil, 2, schemas.Report{}
		c.epochs[x.id] = 0
	}
	c.run(30)
	for _, x := range c.execs {
		if x.role != roles[x.id] {
			t.Errorf("%s was %s and is %s; last: %s", x.id, roles[x.id], x.role, c.last().Reason)
		}
	}
	if a := c.execs[0].assign; a == nil || !a.Pinned {
		t.Errorf("e00 was pinned and has %+v", a)
	}
}

// TestNobodyLeft: where people hold everybody in one phase, the decision names the phase
// that has nobody, and who holds whom.
func TestNobodyLeft(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 3, -1, computerUse(always(20)))
	for _, x := range c.execs {
		c.write(x.id, &schemas.Assignment{Header: schemas.H(), Role: schemas.RoleDecode, By: "ann", Pinned: true})
	}
	c.run(10)
	if d := c.last(); d == nil || d.Rule != flip.RuleFloor || !strings.Contains(d.Reason, "nobody is left to prefill") || !strings.Contains(d.Reason, "e02 is pinned by ann") {
		t.Errorf("%+v", d)
	}
}
