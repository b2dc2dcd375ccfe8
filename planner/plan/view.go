package plan

import (
	"github.com/weir-dev/weir/planner/flip"
	"github.com/weir-dev/weir/planner/split"
	"github.com/weir-dev/weir/schemas"
)

// view is one pool at one moment, as a decision sees it.
type view struct {
	o   *pool
	now schemas.Time

	fit   []*executor // alive, fit, by id
	out   []*executor // alive and unfit, or taken out by this planner
	fresh []*executor // alive without any role

	state    split.State
	floorP   int // fit executors that prefill, with the role in force and not changing
	floorD   int
	inFlight int
	stale    int // fit ones whose reports are too old
	in       schemas.PlanInput
}

// look gathers what is known of a pool.
func (p *Planner) look(now schemas.Time, o *pool) *view {
	v := &view{o: o, now: now}
	for _, id := range p.ids {
		x := p.execs[id]
		if x.pool != o.name || !x.alive {
			continue
		}
		switch {
		case x.unfit != "" || x.outFrom != "":
			v.out = append(v.out, x)
		case x.assign == nil && x.sent == nil && x.epoch == 0 && (x.role == schemas.RoleStandby || x.role == ""):
			v.fresh = append(v.fresh, x)
		case x.target() == schemas.RoleStandby:
			// People's choice.
		default:
			v.fit = append(v.fit, x)
		}
	}
	p.sum(v)
	return v
}

// sum adds up what the fit executors are and do.
func (p *Planner) sum(v *view) {
	o, s, l := v.o, &v.state, &v.o.load
	var slots, kv, kvUsed, decodes float64
	var oldest schemas.Time
	var busyP, busyD float64
	for _, x := range v.fit {
		v.in.Size += x.size
		if x.flying() {
			v.inFlight++
		}
		if x.stale(v.now, p.cfg.ReportAge.Nanoseconds()) {
			v.stale++
		}
		if age := v.now - max(x.rep.at, x.since); age > oldest {
			oldest = age
		}
		slots += float64(x.slots)
		kv += float64(x.kv)
		settled := !x.flying()
		switch x.target() {
		case schemas.RolePrefill:
			s.Prefill += x.size
			busyP += x.rep.busyP * x.size
			if settled {
				v.floorP++
			}
		case schemas.RoleDecode:
			s.Decode += x.size
			busyD += x.rep.busyD * x.size
			kvUsed += float64(x.rep.kvUsed)
			decodes += float64(x.decodes)
			if settled {
				v.floorD++
			}
		case schemas.RoleMixed:
			s.Mixed += x.size
			busyP += x.rep.busyP * x.size
			busyD += x.rep.busyD * x.size
			if settled {
				v.floorP++
				v.floorD++
			}
		}
	}
	var output float64
	s.Model = o.meas.Model()
	if v.in.Size > 0 {
		s.Slots, s.KV = slots/v.in.Size, kv/v.in.Size
	}
	s.Rate, s.Ended = l.rTurns.Fast, l.rEnded.Fast
	fast := s.Model.Prefill(l.rTurns.Fast, l.rUncached.Fast, l.rAttention.Fast)
	slow := s.Model.Prefill(l.rTurns.Slow, l.rUncached.Slow, l.rAttention.Slow)
	switch {
	case l.rTurns.Fast > 0:
		s.TurnWork = fast / l.rTurns.Fast
	case l.rTurns.Slow > 0:
		s.TurnWork = slow / l.rTurns.Slow
	}
	s.Mix, output = l.answers()
	s.InPrefill = l.waitP.Mean + l.inP.Mean
	s.InDecode, s.WaitDecode = l.inD.Mean, l.waitD.Mean
	s.Context = l.context()
	if decodes > 0 && kvUsed > 0 {
		s.Context = kvUsed / decodes
	}
	s.WaitWork = s.Model.Prefill(s.InPrefill, l.waitTokens.Mean, l.waitTokens.Mean*l.attentionPerToken())

	in := &v.in
	in.Executors = len(v.fit)
	in.Prefill, in.Decode, in.Mixed = s.Prefill, s.Decode, s.Mixed
	in.DemandP, in.DemandD = s.Demand()
	in.ForecastP = s.Model.Prefill(l.rTurns.Ahead(horizon), l.rUncached.Ahead(horizon), l.rAttention.Ahead(horizon))
	in.ForecastD = l.rOutput.Ahead(horizon) * s.Unit()
	in.BacklogP = s.WaitWork
	in.BacklogD = (s.InDecode/2 + s.WaitDecode) * output * s.Unit()
	if x := s.Prefill + s.Mixed; x > 0 {
		in.BusyP = busyP / x
	}
	if x := s.Decode + s.Mixed; x > 0 {
		in.BusyD = busyD / x
	}
	if x := s.KV * (s.Decode + s.Mixed); x > 0 {
		in.KV = kvUsed / x
	}
	in.ReportMS, in.LoadMS = int64(oldest)/1e6, int64(v.now-l.at)/1e6
	in.InFlight = v.inFlight
	if o.rules.Dir != 0 {
		in.SinceMS = int64((seconds(v.now) - o.rules.At) * 1e3)
	}
	in.CostMS = o.flips.ms(float64(p.cfg.FlipCost.Milliseconds()))
	in.Confident = o.meas.Confident() && l.seen >= minTurns
	for _, f := range [...]*float64{
		&in.DemandP, &in.DemandD, &in.ForecastP, &in.ForecastD, &in.BacklogP, &in.BacklogD, &in.BusyP, &in.BusyD, &in.KV,
	} {
		*f = round(*f)
	}
}

// horizon of the forecast, in seconds.
const horizon = 12

// minTurns must have been seen before anything is concluded from what flows by.
const minTurns = 8

// stale: its reports are too old, or measure nothing.
func (x *executor) stale(now schemas.Time, age int64) bool {
	return int64(now-max(x.rep.at, x.since)) > age || x.rep.stuck >= stuckReports
}

// movers are the executors that may leave a role, the best one first, and how many more
// would if they were not pinned or held.
func (v *view) movers(from schemas.Role, age int64) (xs []flip.Mover, kept int) {
	for _, x := range v.fit {
		if x.target() != from || x.flying() {
			continue
		}
		if x.assign != nil && x.assign.Pinned || x.hold > v.now || x.stale(v.now, age) {
			kept++
			continue
		}
		xs = append(xs, flip.Mover{ID: x.id, Size: x.size, Busy: x.prefills + x.decodes, Since: seconds(x.changed)})
	}
	flip.Order(xs)
	return xs, kept
}

func seconds(t schemas.Time) float64 { return float64(t) / 1e9 }
