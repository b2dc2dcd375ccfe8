package plan

import (
	"cmp"
	"fmt"

	"github.com/weir-dev/weir/planner/flip"
	"github.com/weir-dev/weir/schemas"
)

// overdue gives up role changes that do not come into force: the executor rolled back,
// or hangs. It is left alone for a while, and gets the role that it has back on paper, so
// that what stands on ROLE is what it does.
func (p *Planner) overdue(v *view) *decision {
	d := &decision{rule: flip.RuleRolledBack, always: true}
	for _, x := range v.fit {
		age := v.now - max(x.seqAt, x.sentAt)
		if p.lostRole(v.now, x) {
			c := p.change(v, x, x.assign.Role, "written anew")
			c.From = x.role
			d.changes = append(d.changes, c)
			d.reason = fmt.Sprintf("%s has no role although it was given %s: that is written anew", x.id, x.assign.Role)
			continue
		}
		if !x.flying() || int64(age) <= int64(p.cfg.Apply) && (x.rep.problem == "" || x.sent != nil || age <= problemAge) {
			continue
		}
		if x.sent == nil && x.role == schemas.RoleDraining && int64(age) <= 2*int64(p.cfg.Apply) {
			continue // it gives up by itself, and says then what it goes on as
		}
		if x.sent != nil { // no answer to the publish: it may stand or not
			x.sent = nil
			continue
		}
		p.counts.GivenUp++
		x.lost = x.seq
		x.hold, x.held = v.now+schemas.Time(p.cfg.Avoid), "its last role change did not come into force"
		if works(x.role) && x.assign != nil && x.role != x.assign.Role {
			c := p.change(v, x, x.role, "as it is")
			c.From = x.assign.Role
			d.changes = append(d.changes, c)
			d.reason = fmt.Sprintf("%s did not become %s within %.0f s and goes on as %s: %s", x.id, x.assign.Role, float64(age)/1e9, x.role, cmp.Or(x.rep.problem, "it does not say why"))
		}
	}
	if len(d.changes) == 0 {
		return nil
	}
	return d
}

// lostRole: it began anew and has not found what stands for it on ROLE, as when the
// stream was emptied.
func (p *Planner) lostRole(now schemas.Time, x *executor) bool {
	if x.sent != nil || x.epoch != 0 || x.role != schemas.RoleStandby || x.assign == nil || !works(x.assign.Role) {
		return false
	}
	return int64(now-max(x.seqAt, x.sentAt, x.since)) > 2*int64(p.cfg.Grace) || x.standsAt != 0 && p.replaces(now, x) != x.seq
}

// problemAge: a report that names a problem is about the last assignment when that is so old.
const problemAge = 4_000_000_000

func works(r schemas.Role) bool {
	return r == schemas.RolePrefill || r == schemas.RoleDecode || r == schemas.RoleMixed
}

// health takes unfit executors out of work and brings fit ones back.
func (p *Planner) health(v *view) *decision {
	d := &decision{rule: flip.RuleUnfit, always: true}
	for _, x := range v.out {
		if x.unfit == "" || x.target() == schemas.RoleStandby || x.sent != nil || x.assign != nil && x.assign.Pinned {
			continue
		}
		role := x.target()
		// While another fit one exists, a phase keeps one: it gets its successor first.
		if last := p.lastOf(v, role); last {
			if c := p.stand(v, role); c != nil {
				d.changes = append(d.changes, *c)
				d.reason = fmt.Sprintf("%s is unfit (%s) and the last that can %s: %s takes its place first", x.id, x.unfit, role, c.Executor)
				return d
			}
			continue // its successor is on its way, or nobody can be one: better an unfit one than none
		}
		d.changes = append(d.changes, p.change(v, x, schemas.RoleStandby, "unfit: "+x.unfit))
		d.reason = fmt.Sprintf("%s is unfit: %s", x.id, x.unfit)
	}
	if len(d.changes) > 0 {
		return d
	}
	d.rule = flip.RuleFit
	for _, x := range v.out {
		if x.unfit != "" || x.flying() || int64(v.now-x.fitAt) < int64(p.cfg.Fit) {
			continue
		}
		to := x.outFrom
		if to != schemas.RolePrefill && to != schemas.RoleDecode {
			to = schemas.RoleDecode
		}
		if v.floorP == 0 {
			to = schemas.RolePrefill
		} else if v.floorD == 0 {
			to = schemas.RoleDecode
		}
		d.changes = append(d.changes, p.change(v, x, to, "fit again"))
		d.reason = fmt.Sprintf("%s is fit again and goes back to %s", x.id, to)
	}
	if len(d.changes) > 0 {
		return d
	}
	return nil
}

// lastOf: no fit executor does what that role does.
func (p *Planner) lastOf(v *view, role schemas.Role) bool {
	switch role {
	case schemas.RolePrefill:
		return v.floorP == 0
	case schemas.RoleDecode:
		return v.floorD == 0
	case schemas.RoleMixed:
		return v.floorP == 0 || v.floorD == 0
	}
	return false
}

// floor gives a phase that has nobody an executor.
func (p *Planner) floor(v *view) *decision {
	if len(v.fit) == 0 || v.floorP > 0 && v.floorD > 0 || v.inFlight > 0 {
		return nil
	}
	role := schemas.RolePrefill
	if v.floorP > 0 {
		role = schemas.RoleDecode
	}
	c := p.stand(v, role)
	if c == nil {
		return nil
	}
	return &decision{
		rule: flip.RuleFloor, always: true, changes: []schemas.RoleChange{*c},
		reason: fmt.Sprintf("nobody is left to %s: %s becomes %s", role, c.Executor, c.To),
	}
}

// without says that a phase has nobody and why nobody may be given to it.
func (p *Planner) without(v *view) decision {
	role := schemas.RolePrefill
	if v.floorP > 0 {
		role = schemas.RoleDecode
	}
	var kept []string
	for _, x := range v.fit {
		if why := x.kept(v.now, int64(p.cfg.ReportAge)); why != "" {
			kept = append(kept, x.id+" "+why)
		}
	}
	return decision{rule: flip.RuleFloor, reason: fmt.Sprintf("nobody is left to %s, and nobody may be changed: %s", role, listed(kept))}
}

// stand is the change that gives a phase somebody: of the other phase's executors the
// least busy one; the only one left does both. Pins are overruled only by nothing: a
// pinned executor stays.
func (p *Planner) stand(v *view, role schemas.Role) *schemas.RoleChange {
	other, left := schemas.RoleDecode, v.floorD
	if role == schemas.RoleDecode {
		other, left = schemas.RolePrefill, v.floorP
	}
	var best *executor
	for _, x := range v.fit {
		// What a mixed one did, any of the others can do.
		if x.target() != other && (role != schemas.RoleMixed || !works(x.target())) || x.flying() || x.assign != nil && x.assign.Pinned {
			continue
		}
		// Whom people set goes only when there is nobody else.
		kept := x.hold > v.now
		if best == nil || (best.hold > v.now) && !kept || kept == (best.hold > v.now) && x.prefills+x.decodes < best.prefills+best.decodes {
			best = x
		}
	}
	if best == nil {
		return nil
	}
	to := role
	if left < 2 || role == schemas.RoleMixed {
		to = schemas.RoleMixed
	}
	c := p.change(v, best, to, "a phase must not be without anybody")
	return &c
}

// first gives roles to executors that never had one. It waits until no other appears
// for a moment, so that the order in which they start does not matter.
func (p *Planner) first(v *view) *decision {
	if len(v.fresh) == 0 || int64(v.now-v.o.newest) < int64(p.cfg.Start) {
		return nil
	}
	d := &decision{rule: flip.RuleStart, always: true}
	prefill, decode := v.state.Prefill, v.state.Decode
	share := 0.5
	if a, b := v.state.Demand(); v.in.Confident && a+b > 0 {
		share = min(max(a/(a+b), 0.1), 0.9)
	}
	for i, x := range v.fresh {
		to := schemas.RoleDecode
		total := prefill + decode + x.size
		switch {
		case len(v.fit) == 0 && len(v.fresh) == 1:
			to = schemas.RoleMixed // alone
		case prefill == 0 && v.state.Mixed == 0:
			to = schemas.RolePrefill
		case decode == 0 && v.state.Mixed == 0:
		case i < len(v.fresh) && prefill+x.size <= share*total+1e-9:
			to = schemas.RolePrefill
		}
		if to == schemas.RolePrefill {
			prefill += x.size
		} else {
			decode += x.size
		}
		d.changes = append(d.changes, p.change(v, x, to, "first role"))
	}
	d.reason = fmt.Sprintf("first roles for %d executors", len(v.fresh))
	// One that worked alone did both; with company it need not.
	if len(v.fit) == 1 && v.fit[0].target() == schemas.RoleMixed && v.fit[0].assign != nil && v.fit[0].assign.By == by && !v.fit[0].assign.Pinned {
		d.changes = append(d.changes, p.change(v, v.fit[0], other(d.changes[0].To), "no longer alone"))
	}
	return d
}

func other(r schemas.Role) schemas.Role {
	if r == schemas.RolePrefill {
		return schemas.RoleDecode
	}
	return schemas.RolePrefill
}
