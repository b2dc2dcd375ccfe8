package plan

import (
	"fmt"

	"github.com/weir-dev/weir/planner/flip"
	"github.com/weir-dev/weir/schemas"
)

// policy names this planner in decisions.
const policy = "weir"

// act publishes what was decided: the decision when it changes something, when the rule
// that holds changes back is another one, and once a minute; the assignments unless the
// mode forbids them.
func (p *Planner) act(v *view, d decision, out []schemas.Msg) []schemas.Msg {
	o := v.o
	acts := p.mode == schemas.ModeAct || p.mode == schemas.ModePaused && d.always
	if p.mode == schemas.ModeAdvise {
		p.advise(v, &d)
	}
	quiet := int64(v.now - o.shown)
	if len(d.changes) == 0 && quiet < int64(p.cfg.Repeat) && (d.rule == o.rule || weighing(d.rule) && weighing(o.rule) && quiet < int64(p.cfg.Repeat)/6) {
		return out
	}
	if !acts && len(d.changes) > 0 && d.rule == o.rule && int64(v.now-o.shown) < int64(p.cfg.Repeat) {
		return out // the same advice
	}
	o.rule, o.shown = d.rule, v.now
	p.plans++
	p.counts.Decisions++
	id := fmt.Sprintf("%d-%d", p.cfg.Epoch, p.plans)
	if len(d.candidates) > schemas.MaxCandidates {
		d.candidates = d.candidates[:schemas.MaxCandidates]
	}
	m := &schemas.Plan{
		Header: schemas.H(), ID: id, AtNS: int64(v.now), Pool: o.name, Mode: p.mode, Policy: policy, Inputs: v.in,
		Candidates: d.candidates, Changes: d.changes, Rule: d.rule, Reason: d.reason,
	}
	if p.mode == schemas.ModeAdvise {
		m.Advised = round(o.advice)
	}
	out = append(out, schemas.Msg{Kind: schemas.KindPlan, Subject: schemas.PlanSubject(p.cfg.Cell), ID: "plan-" + p.cfg.Cell + "-" + id, Plan: m})
	if !acts {
		return out
	}
	for i := range d.changes {
		out = p.assign(v, &d.changes[i], id, d.reason, out)
	}
	if d.dir != 0 {
		o.rules.Changed(seconds(v.now), d.dir)
	}
	return out
}

// weighing: the rule says how far the planner is from a change. Near the best split these
// take turns every second, which nobody wants to read.
func weighing(rule string) bool {
	switch rule {
	case flip.RuleBest, flip.RuleDeadBand, flip.RuleRegret, flip.RuleSettle, flip.RuleDwell:
		return true
	}
	return false
}

// assign publishes one assignment, if nobody wrote another one since the last that was seen.
func (p *Planner) assign(v *view, c *schemas.RoleChange, plan, reason string, out []schemas.Msg) []schemas.Msg {
	x := p.execs[c.Executor]
	a := &schemas.Assignment{Header: schemas.H(), Role: c.To, Classes: c.Classes, Absorb: c.Absorb, Plan: plan, Reason: reason, By: by}
	switch {
	case c.To == schemas.RoleStandby:
		x.outFrom = c.From
		x.fitAt = v.now
	case x.outFrom != "":
		x.outFrom = ""
	}
	if c.From != c.To {
		x.changed = v.now
	}
	if w := x.assign; w != nil && w.Pinned && w.Role == c.To { // written anew, for those who wrote it
		a.Pinned, a.Classes, a.Absorb = true, w.Classes, w.Absorb
	}
	x.sent, x.sentAt = a, v.now
	p.counts.Changes++
	return append(out, schemas.Msg{
		Kind: schemas.KindAssignment, Subject: schemas.RoleSubject(p.cfg.Cell, x.id), ID: "role-" + x.id + "-" + plan,
		ExpectSet: true, ExpectSeq: p.replaces(v.now, x), Confirm: true, Assignment: a,
	})
}

// advise values what acting would have brought: while the best split is another one than
// what people left in force, its gain adds up, and each change of advice costs its flips.
func (p *Planner) advise(v *view, d *decision) {
	o := v.o
	if d.dir == 0 || len(d.candidates) == 0 {
		o.advDir = 0
		return
	}
	h := p.cfg.Rules.Horizon
	here := 0.0
	for _, c := range d.candidates {
		if c.Flips == 0 {
			here = c.Value
		}
	}
	o.advice += (d.candidates[0].Value + d.candidates[0].Cost - here) / h * p.cfg.Tick.Seconds()
	if d.dir != o.advDir {
		o.advice -= d.candidates[0].Cost
		o.advDir = d.dir
	}
}
