package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/weir-dev/weir/planner/flip"
	"github.com/weir-dev/weir/schemas"
)

// decision is what one look at a pool came to.
type decision struct {
	rule       string
	reason     string
	changes    []schemas.RoleChange
	candidates []schemas.Candidate
	dir        int
	// always: taken in every mode but advise, because it keeps the pool able to serve.
	always bool
}

// decide looks at every pool. The rules come in this order; the first that says
// something ends the look:
//
//	bus away, grace       nothing is known
//	rolled_back           what stands on ROLE is what executors do
//	unfit, fit, floor     who can work, and whether both phases have somebody
//	start                 first roles
//	paused                people said so
//	stale, samples        nothing to decide on
//	in_flight             let what was decided come into force
//	unpressed             nobody waits
//	gain, or what held it back: best, dead_band, settle, dwell, pinned
//	absorb                what decode executors may compute themselves
func (p *Planner) decide(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	if p.busGone || int64(now-p.busBack) < int64(p.cfg.Grace) {
		return out
	}
	for _, id := range p.ids {
		x := p.execs[id]
		if x.alive && int64(now-max(x.lastHB, p.busBack)) > int64(p.cfg.Silent) {
			x.alive = false
		}
	}
	p.forget(now)
	for _, name := range p.names {
		o := p.pools[name]
		v := p.look(now, o)
		if len(v.fit)+len(v.out)+len(v.fresh) == 0 {
			continue
		}
		d := p.judge(v)
		out = p.act(v, d, out)
	}
	return out
}

func (p *Planner) judge(v *view) decision {
	for _, f := range [...]func(*view) *decision{p.overdue, p.health, p.floor, p.first} {
		if d := f(v); d != nil {
			return *d
		}
	}
	in := &v.in
	switch {
	case len(v.fit) > 0 && v.inFlight == 0 && (v.floorP == 0 || v.floorD == 0):
		return p.without(v)
	case p.mode == schemas.ModePaused:
		return decision{rule: flip.RulePaused, reason: "paused by people: roles stay"}
	case len(v.fit) < 2:
		return decision{rule: flip.RuleQuiet, reason: fmt.Sprintf("%d executors can work, nothing to choose", len(v.fit))}
	case v.o.load.at == 0:
		return decision{rule: flip.RuleStale, reason: "no load of the router has come yet"}
	case int64(v.now-v.o.load.at) > int64(p.cfg.LoadAge):
		return decision{rule: flip.RuleStale, reason: fmt.Sprintf("the router's load is %.0f s old", float64(in.LoadMS)/1e3)}
	case 4*v.stale > len(v.fit):
		return decision{rule: flip.RuleStale, reason: fmt.Sprintf("reports of %d of %d executors are older than %s or stand still", v.stale, len(v.fit), p.cfg.ReportAge)}
	case !in.Confident:
		a, b := v.o.meas.Samples()
		return decision{rule: flip.RuleSamples, reason: fmt.Sprintf("%.0f turns, %d samples of prefill and %d of decode are too few", v.o.load.seen, a, b)}
	case v.inFlight >= p.bound(len(v.fit)):
		return decision{rule: flip.RuleInFlight, reason: fmt.Sprintf("%d role changes are under way", v.inFlight)}
	}
	return p.choose(v)
}

// bound is how many roles of n executors may change at once.
func (p *Planner) bound(n int) int { return max(1, int(float64(n)*p.cfg.InFlight)) }

// pressed tells whether somebody waits or a side has little left. Below that a change of
// roles could only make light work lighter.
func (v *view) pressed() bool {
	s := &v.state
	batch, _ := s.Batch()
	waits := max(0, s.InPrefill-s.Rate*s.Model.Alone(s.TurnWork))
	return v.in.BusyP > 0.5 || waits > 1+0.02*s.InDecode || s.WaitDecode > 0.5 || v.in.KV > 0.5 ||
		s.InDecode > 0.1*batch*(s.Decode+s.Mixed/2)
}

// choose values the splits that can be reached and takes the best one, or says what held
// it back.
func (p *Planner) choose(v *view) decision {
	if !v.pressed() {
		d := decision{rule: flip.RuleUnpressed, reason: fmt.Sprintf("prefill is busy %.0f %%, KV of decode is %.0f %% full, nobody waits", v.in.BusyP*100, v.in.KV*100)}
		return p.absorbing(v, d)
	}
	s := &v.state
	here := s.Value(s.Prefill, s.Decode)
	d := decision{rule: flip.RuleBest}
	d.candidates = append(d.candidates, p.candidate(v, s.Prefill, s.Decode, 0, here.Value, 0, here.Why))
	var xs []flip.Choice
	var moves [][]flip.Mover
	best := -1
	var kept []string
	for _, dir := range [...]int{1, -1} {
		from, left := schemas.RoleDecode, v.floorD
		if dir < 0 {
			from, left = schemas.RolePrefill, v.floorP
		}
		movers, held := v.movers(from, int64(p.cfg.ReportAge))
		kept = append(kept, held...)
		for _, n := range flip.Counts(min(len(movers), left-1)) {
			size, cost := 0.0, 0.0
			for _, m := range movers[:n] {
				size += m.Size
				cost += m.Size*v.in.CostMS/1e3 + float64(m.Busy)*handOver
			}
			pp, dd := s.Prefill+float64(dir)*size, s.Decode-float64(dir)*size
			o := s.Value(pp, dd)
			d.candidates = append(d.candidates, p.candidate(v, pp, dd, n, o.Value, cost, o.Why))
			xs = append(xs, flip.Choice{By: dir * n, Gain: o.Value - here.Value, Cost: cost})
			moves = append(moves, movers[:n])
			if best < 0 || xs[len(xs)-1].Gain > xs[best].Gain {
				best = len(xs) - 1
			}
		}
	}
	take, rule := v.o.rules.Judge(&p.cfg.Rules, seconds(v.now), here.Value, xs)
	d.rule = rule
	if take >= 0 {
		best = take
	}
	switch {
	case best >= 0 && xs[best].Gain > 0:
		c := d.candidates[best+1]
		d.reason = fmt.Sprintf("%d:%d is predicted to do %.2f of work per second, %d:%d now does %.2f", c.Prefill, c.Decode,
			here.Value+xs[best].Gain, d.candidates[0].Prefill, d.candidates[0].Decode, here.Value) + p.heldBack(v, rule, here.Why, v.o.rules.Regret[xs[best].By])
	case len(kept) > 0:
		d.rule, d.reason = flip.RulePinned, fmt.Sprintf("no split of the others is better: %s", listed(kept))
	default:
		d.reason = fmt.Sprintf("no split is better than %d:%d, held back by %s", d.candidates[0].Prefill, d.candidates[0].Decode, here.Why)
	}
	if take >= 0 {
		d.dir = 1
		if xs[take].By < 0 {
			d.dir = -1
		}
		room := p.bound(len(v.fit)) - v.inFlight
		for _, m := range moves[take][:min(len(moves[take]), room)] {
			d.changes = append(d.changes, p.change(v, p.execs[m.ID], roleOf(d.dir), fmt.Sprintf("holds %d turns, the fewest", m.Busy)))
		}
	}
	sortCandidates(d.candidates)
	if len(d.changes) == 0 {
		return p.absorbing(v, d)
	}
	return d
}

// heldBack is the end of the sentence: why the better split is taken or not.
func (p *Planner) heldBack(v *view, rule, why string, regret float64) string {
	switch rule {
	case flip.RuleGain:
		return "; held back by " + why
	case flip.RuleDeadBand:
		return fmt.Sprintf(", less than %.0f %% more", p.cfg.Rules.Band*100)
	case flip.RuleRegret:
		return fmt.Sprintf(", but staying has cost only %.1f worker seconds so far", regret)
	case flip.RuleSettle:
		return ", but the last change has not shown its effect"
	case flip.RuleDwell:
		return ", but the last change was the other way round and too recent"
	}
	return ""
}

// handOver is what handing over one running turn takes, in worker seconds: a seal, a
// transfer, and a place in another batch.
const handOver = 0.01

func roleOf(dir int) schemas.Role {
	if dir > 0 {
		return schemas.RolePrefill
	}
	return schemas.RoleDecode
}

func (p *Planner) candidate(v *view, pp, dd float64, flips int, value, cost float64, why string) schemas.Candidate {
	h := p.cfg.Rules.Horizon
	return schemas.Candidate{Prefill: int(math.Round(pp)), Decode: int(math.Round(dd)), Flips: flips, Value: round(value*h - cost), Cost: round(cost), Why: why}
}

// sortCandidates puts the best first and keeps MaxCandidates.
func sortCandidates(xs []schemas.Candidate) {
	slices.SortStableFunc(xs, func(a, b schemas.Candidate) int {
		switch {
		case a.Value > b.Value:
			return -1
		case a.Value < b.Value:
			return 1
		}
		return 0
	})
}

// change is one assignment of a decision.
func (p *Planner) change(v *view, x *executor, to schemas.Role, why string) schemas.RoleChange {
	c := schemas.RoleChange{Executor: x.id, From: x.target(), To: to, Why: why}
	if to == schemas.RoleDecode {
		c.Absorb = v.o.absorb
	}
	return c
}

// round keeps figures readable and JSON short.
func round(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return math.Round(x*1e4) / 1e4
}
