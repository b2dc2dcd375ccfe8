package plan

import (
	"fmt"

	"github.com/weir-dev/weir/planner/flip"
	"github.com/weir-dev/weir/schemas"
)

// absorbing lets decode executors compute larger prompts themselves, or stops that. A
// burst that is shorter than the planner's loop then needs no role change: the router
// may give a prompt to a decode executor where that is sooner. The class bounds the
// harm, because a decode stands still while its executor computes a prompt.
func (p *Planner) absorbing(v *view, d decision) decision {
	want := p.absorbClass(v)
	if want == v.o.absorb && !v.differs(want) {
		v.o.absAt = 0
		return d
	}
	if v.o.absAt == 0 || want != v.o.absorb {
		if v.o.absorb != want {
			v.o.absorb, v.o.absAt = want, v.now
		} else {
			v.o.absAt = v.now
		}
		return d
	}
	if int64(v.now-v.o.absAt) < int64(p.cfg.Repeat)/2 || v.inFlight > 0 || p.mode == schemas.ModePaused {
		return d
	}
	room := p.bound(len(v.fit))
	for _, x := range v.fit {
		if x.target() == schemas.RoleDecode && !x.flying() && x.hold <= v.now && (x.assign == nil || !x.assign.Pinned) && class(x.absorb) != want && room > 0 {
			d.changes = append(d.changes, p.change(v, x, schemas.RoleDecode, "only what it may compute itself changes"))
			room--
		}
	}
	if len(d.changes) > 0 {
		d.rule, d.dir = flip.RuleAbsorb, 0
		d.reason = fmt.Sprintf("decode executors may compute prompts of class %s themselves: a whole one takes them %.0f ms", want, 1e3*v.state.Model.Prefill(1, float64(want.Max()), 0))
	}
	return d
}

// absorbClass is the largest class whose prompts stall decodes for no more than
// AbsorbMax, and only S while decode is short itself.
func (p *Planner) absorbClass(v *view) schemas.SizeClass {
	s := &v.state
	batch, _ := s.Batch()
	full := s.InDecode+s.WaitDecode > 0.8*batch*(s.Decode+s.Mixed/2)
	if full || !s.Model.Known() {
		return schemas.SizeS
	}
	stall := max(s.Model.Launch, s.Model.Prefill(1, schemas.SizeMMax, 0)*1.0)
	if stall > p.cfg.AbsorbMax.Seconds() {
		return schemas.SizeS
	}
	return schemas.SizeM
}

func class(c schemas.SizeClass) schemas.SizeClass {
	if c == "" {
		return schemas.SizeS
	}
	return c
}

// differs: some decode executor may absorb another class.
func (v *view) differs(want schemas.SizeClass) bool {
	for _, x := range v.fit {
		if x.target() == schemas.RoleDecode && !x.flying() && class(x.absorb) != want {
			return true
		}
	}
	return false
}
