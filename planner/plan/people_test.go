package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
)

// sicken makes the reports of some executors say that they are unfit.
func (c *fakeCell) sicken(why string, xs ...*fakeExec) {
	c.onReport = func(r *schemas.Report) bool {
		if slices.ContainsFunc(xs, func(x *fakeExec) bool { return x.id == r.Executor }) {
			r.Unfit = why
		}
		return true
	}
}

// TestUnfitWithoutSuccessor: the last of a phase works on, however sick, while people
// hold all others in the other phase.
func TestUnfitWithoutSuccessor(t *testing.T) {
	for _, role := range []schemas.Role{schemas.RolePrefill, schemas.RoleDecode} {
		t.Run(string(role), func(t *testing.T) {
			c := newCell(1, plan.Config{Model: glm()}, 4, -1, computerUse(always(20)))
			other := schemas.RoleDecode
			if role == other {
				other = schemas.RolePrefill
			}
			c.set("e00", role, "up")
			for _, x := range c.execs[1:] {
				c.write(x.id, &schemas.Assignment{Header: schemas.H(), Role: other, By: "ann", Pinned: true})
			}
			c.run(10)
			c.sicken("XID 79", c.execs[0])
			c.runChecked(t, 30)
			if got := c.execs[0].role; got != role {
				t.Errorf("the only one that can %s became %s", role, got)
			}
		})
	}
}

// TestUnfitMixed: what a sick executor did alone for both phases goes to those that can
// do it before it leaves.
func TestUnfitMixed(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 2, -1, computerUse(always(20)))
	c.set("e00", schemas.RoleMixed, "up")
	c.set("e01", schemas.RolePrefill, "up")
	c.run(10)
	c.sicken("XID 79", c.execs[0])
	c.runChecked(t, 30)
	if got := c.execs[0].role; got != schemas.RoleStandby {
		t.Errorf("30 s after it became unfit it is %s", got)
	}
}

// TestUnfitTakenOver: an executor that people give a role while it is out of work keeps
// that role when it is fit again.
func TestUnfitTakenOver(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 4, 2, computerUse(always(20)))
	c.run(10)
	x := c.execs[0]
	c.sicken("XID 79", x)
	c.runChecked(t, 10)
	if x.role != schemas.RoleStandby {
		t.Fatalf("unfit for 10 s, it is %s", x.role)
	}
	c.onReport = nil
	c.write(x.id, &schemas.Assignment{Header: schemas.H(), Role: schemas.RoleDecode, By: "ann", Pinned: true})
	c.runChecked(t, 60)
	if x.role != schemas.RoleDecode || x.seq != c.epochs[x.id] || !x.assign.Pinned {
		t.Errorf("ann pinned it to decode, it is %s by %q", x.role, x.assign.By)
	}
}

// TestBackAfterLong: an executor that was away for so long that it was forgotten can be
// given another role, and a pinned one is still pinned.
func TestBackAfterLong(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 4, 2, computerUse(always(40)))
	c.write("e02", &schemas.Assignment{Header: schemas.H(), Role: schemas.RoleDecode, By: "ann", Pinned: true})
	c.run(10)
	for _, x := range c.execs[:3] {
		c.kill(x)
	}
	c.run(700)
	for _, x := range c.execs[:3] {
		x.dead, x.boot = false, 2
	}
	c.run(10)
	refused := c.p.Counts().Refused
	c.sicken("XID 79", c.execs[:3]...)
	c.runChecked(t, 30)
	if got := c.p.Counts().Refused - refused; got != 0 {
		t.Errorf("%d assignments were refused", got)
	}
	for i, want := range []schemas.Role{schemas.RoleStandby, schemas.RoleStandby, schemas.RoleDecode} {
		if got := c.execs[i].role; got != want {
			t.Errorf("%s is %s, want %s", c.execs[i].id, got, want)
		}
	}
}

// TestLongWords: what executors say of themselves cannot make a decision too large for a
// message.
func TestLongWords(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 4, 2, computerUse(always(20)))
	c.run(10)
	c.sicken(strings.Repeat("é", schemas.MaxMessage/2), c.execs[0], c.execs[2])
	c.runChecked(t, 10)
	if c.execs[0].role != schemas.RoleStandby {
		t.Error("an unfit executor stays in work")
	}
	for _, p := range c.plans {
		if b, err := schemas.Encode(p); err != nil || len(b) > schemas.MaxMessage/100 {
			t.Errorf("a decision of %d bytes, %v", len(b), err)
		}
	}
}

// TestDrainsForLong: of an executor that gives a change up after long draining, ROLE says
// in the end what it does.
func TestDrainsForLong(t *testing.T) {
	c := newCell(1, plan.Config{Model: glm()}, 9, 2, computerUse(always(900)))
	var x *fakeExec
	c.onAssign = func(e *fakeExec, a *schemas.Assignment) bool {
		if x == nil && a.By == "planner" && a.Role != e.role {
			x, e.role = e, schemas.RoleDraining
		}
		return x != e || a.Role != schemas.RolePrefill
	}
	for range 60 {
		if c.run(1); x != nil {
			break
		}
	}
	if x == nil {
		t.Fatal("no role changes")
	}
	c.run(22)
	x.role = schemas.RoleDecode
	c.run(5)
	if x.assign.Role != schemas.RoleDecode || x.seq != c.epochs[x.id] {
		t.Errorf("it decodes, and %s stands on ROLE", x.assign.Role)
	}
}
