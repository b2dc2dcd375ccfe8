package plan

import (
	"fmt"
	"strings"

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
	output   float64 // mean tokens of an answer
	floorP   int     // fit executors that prefill, with the role in force and not changing
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

// side is what the executors of a role do together.
type side struct {
	size, busy     float64 // busy: times size
	kvUsed, decode float64
	settled        int // with the role in force, and not changing
}

func (d *side) add(x *executor) {
	d.size += x.size
	d.busy += x.rep.busyP * x.size
	d.kvUsed += float64(x.rep.kvUsed)
	d.decode += float64(x.decodes)
	if !x.flying() {
		d.settled++
	}
}

// sum adds up what the fit executors are and do.
func (p *Planner) sum(v *view) {
	s, in := &v.state, &v.in
	var pre, dec, mix side
	var slots, kv, busyD float64
	var oldest schemas.Time
	for _, x := range v.fit {
		in.Size += x.size
		if x.flying() {
			v.inFlight++
		}
		if x.stale(v.now, p.cfg.ReportAge.Nanoseconds()) {
			v.stale++
		}
		oldest = max(oldest, v.now-max(x.rep.at, x.since))
		slots += float64(x.slots)
		kv += float64(x.kv)
		switch x.target() {
		case schemas.RolePrefill:
			pre.add(x)
		case schemas.RoleDecode:
			dec.add(x)
			busyD += x.rep.busyD * x.size
		case schemas.RoleMixed:
			mix.add(x)
			busyD += x.rep.busyD * x.size
		}
	}
	v.floorP, v.floorD = pre.settled+mix.settled, dec.settled+mix.settled
	s.Prefill, s.Decode, s.Mixed = pre.size, dec.size, mix.size
	if in.Size > 0 {
		s.Slots, s.KV = slots/in.Size, kv/in.Size
	}
	v.flows()
	kvUsed := dec.kvUsed + mix.kvUsed
	if n := dec.decode + mix.decode; n > 0 && kvUsed > 0 {
		s.Context = kvUsed / n
	}
	in.Executors, in.InFlight = len(v.fit), v.inFlight
	in.Prefill, in.Decode, in.Mixed = s.Prefill, s.Decode, s.Mixed
	in.BusyP = share(pre.busy+mix.busy, s.Prefill+s.Mixed)
	in.BusyD = share(busyD, s.Decode+s.Mixed)
	in.KV = share(kvUsed, s.KV*(s.Decode+s.Mixed))
	in.ReportMS = int64(oldest) / 1e6
	in.CostMS = round(v.o.flips.ms(float64(p.cfg.FlipCost.Milliseconds())))
	v.work()
}

func share(x, of float64) float64 {
	if of <= 0 {
		return 0
	}
	return round(x / of)
}

// flows takes from the router's load what flows through the pool and what waits.
func (v *view) flows() {
	s, l := &v.state, &v.o.load
	s.Model = v.o.meas.Model()
	s.Rate, s.Ended = l.rTurns.Fast, l.rEnded.Fast
	switch {
	case l.rTurns.Fast > 0:
		s.TurnWork = s.Model.Prefill(l.rTurns.Fast, l.rUncached.Fast, l.rAttention.Fast) / l.rTurns.Fast
	case l.rTurns.Slow > 0:
		s.TurnWork = s.Model.Prefill(l.rTurns.Slow, l.rUncached.Slow, l.rAttention.Slow) / l.rTurns.Slow
	}
	s.Mix, v.output = l.answers()
	s.InPrefill = l.waitP.Mean + l.inP.Mean
	s.InDecode, s.WaitDecode = l.inD.Mean, l.waitD.Mean
	s.Context = l.context()
	s.WaitWork = s.Model.Prefill(s.InPrefill, l.waitTokens.Mean, l.waitTokens.Mean*l.attentionPerToken())
}

// work is what a decision says of demand, in worker seconds.
func (v *view) work() {
	s, l, in, o := &v.state, &v.o.load, &v.in, v.o
	p, d := s.Demand()
	in.DemandP, in.DemandD = round(p), round(d)
	in.ForecastP = round(s.Model.Prefill(l.rTurns.Ahead(horizon), l.rUncached.Ahead(horizon), l.rAttention.Ahead(horizon)))
	in.ForecastD = round(l.rOutput.Ahead(horizon) * s.Unit())
	in.BacklogP = round(s.WaitWork)
	in.BacklogD = round((s.InDecode/2 + s.WaitDecode) * v.output * s.Unit())
	if l.at != 0 {
		in.LoadMS = int64(v.now-l.at) / 1e6
	}
	if o.rules.Dir != 0 {
		in.SinceMS = int64((seconds(v.now) - o.rules.At) * 1e3)
	}
	in.Confident = o.meas.Confident() && l.seen >= minTurns
}

// horizon of the forecast, in seconds.
const horizon = 12

// minTurns must have been seen before anything is concluded from what flows by.
const minTurns = 8

// stale: its reports are too old, or measure nothing.
func (x *executor) stale(now schemas.Time, age int64) bool {
	return int64(now-max(x.rep.at, x.since)) > age || x.rep.stuck >= stuckReports
}

// movers are the executors that may leave a role, the best one first, and what keeps
// others in it.
func (v *view) movers(from schemas.Role, age int64) (xs []flip.Mover, kept []string) {
	for _, x := range v.fit {
		if x.target() != from || x.flying() {
			continue
		}
		if why := x.kept(v.now, age); why != "" {
			kept = append(kept, x.id+" "+why)
			continue
		}
		xs = append(xs, flip.Mover{ID: x.id, Size: x.size, Busy: x.prefills + x.decodes, Since: seconds(x.changed)})
	}
	flip.Order(xs)
	return xs, kept
}

// kept is why nobody but people may change the role of x now, "" if the planner may.
func (x *executor) kept(now schemas.Time, age int64) string {
	switch {
	case x.assign != nil && x.assign.Pinned:
		return "is pinned by " + cut(x.assign.By)
	case x.hold > now:
		return "is left alone (" + x.held + ")"
	case x.stale(now, age):
		return "reports nothing"
	}
	return ""
}

// listed joins what is said of several executors, of at most six by name.
func listed(xs []string) string {
	const most = 6
	if len(xs) <= most {
		return strings.Join(xs, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(xs[:most], ", "), len(xs)-most)
}

func seconds(t schemas.Time) float64 { return float64(t) / 1e9 }
