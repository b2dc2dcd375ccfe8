package plan

import (
	"encoding/json"
	"fmt"
	"sort"

	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/planner/flip"
	"github.com/weir-dev/weir/schemas"
)

// snapVersion changes when an older snapshot cannot be read any more; it is then
// ignored, which costs a planner its smoothing and dwell times only.
const snapVersion = 1

type snapshot struct {
	Version int          `json:"v"`
	Mode    schemas.Mode `json:"mode"`
	ModeSeq uint64       `json:"mode_seq"`
	Plans   uint64       `json:"plans"`
	Started schemas.Time `json:"started"`
	BusBack schemas.Time `json:"bus_back"`
	BusGone bool         `json:"bus_gone,omitempty"`
	TickAt  schemas.Time `json:"tick_at"`
	Router  uint64       `json:"router"`
	LoadAt  schemas.Time `json:"load_at"`
	LoadNS  int64        `json:"load_ns"`
	Counts  Counts       `json:"counts"`
	Execs   []snapExec   `json:"execs"`
	Pools   []snapPool   `json:"pools"`
}

type snapExec struct {
	ID, Boot, Pool string
	Role           schemas.Role
	Epoch          uint64
	Absorb         schemas.SizeClass
	Size           float64
	Slots, Context int
	KV             int
	Prefills       int
	Decodes        int
	Since, LastHB  schemas.Time
	Alive          bool
	Assign, Sent   *schemas.Assignment
	Seq            uint64
	SeqAt, SentAt  schemas.Time
	Changed, Hold  schemas.Time
	Held, Unfit    string
	FitAt          schemas.Time
	OutFrom        schemas.Role
	Lost, Stands   uint64
	StandsAt       schemas.Time
	Rep            snapReport
}

type snapReport struct {
	At           schemas.Time
	NS           int64
	Seen, Stuck  int
	BusyP, BusyD float64
	KVUsed       int
	Flips        uint64
	Problem      string
	Totals       [6]demand.Total
}

type snapPool struct {
	Name   string
	Load   snapLoad
	Meas   demand.Measured
	Rules  flip.State
	Flips  costs
	Newest schemas.Time
	Rule   string
	Shown  schemas.Time
	Advice float64
	AdvDir int
	Absorb schemas.SizeClass
	AbsAt  schemas.Time
}

type snapLoad struct {
	At     schemas.Time
	Now    schemas.PoolLoad
	Totals [7]demand.Total
	Rates  [7]demand.Rate
	Seen   float64
	Levels [5]demand.Level
}

func (r *report) totals() [6]*demand.Total {
	return [6]*demand.Total{&r.prefillTokens, &r.decodeTokens, &r.prefillNS, &r.decodeNS, &r.steps, &r.rows}
}

func (l *load) totals() [7]*demand.Total {
	return [7]*demand.Total{&l.turns, &l.uncached, &l.attention, &l.ended, &l.output, &l.outContext, &l.squares}
}

func (l *load) rates() [7]*demand.Rate {
	return [7]*demand.Rate{&l.rTurns, &l.rUncached, &l.rAttention, &l.rEnded, &l.rOutput, &l.rContext, &l.rSquares}
}

func (l *load) levels() [5]*demand.Level {
	return [5]*demand.Level{&l.waitP, &l.inP, &l.waitD, &l.inD, &l.waitTokens}
}

// Snapshot appends all that the planner knows, as JSON.
func (p *Planner) Snapshot(dst []byte) ([]byte, error) {
	s := snapshot{
		Version: snapVersion, Mode: p.mode, ModeSeq: p.modeSeq, Plans: p.plans, Started: p.started, BusBack: p.busBack, BusGone: p.busGone,
		TickAt: p.tickAt, Router: p.router, LoadAt: p.loadAt, LoadNS: p.loadNS, Counts: p.counts,
	}
	for _, id := range p.ids {
		x := p.execs[id]
		e := snapExec{
			ID: x.id, Boot: x.boot, Pool: x.pool, Role: x.role, Epoch: x.epoch, Absorb: x.absorb, Size: x.size, Slots: x.slots, Context: x.context,
			KV: x.kv, Prefills: x.prefills, Decodes: x.decodes, Since: x.since, LastHB: x.lastHB, Alive: x.alive, Assign: x.assign, Sent: x.sent,
			Seq: x.seq, SeqAt: x.seqAt, SentAt: x.sentAt, Changed: x.changed, Hold: x.hold, Held: x.held, Unfit: x.unfit, FitAt: x.fitAt, OutFrom: x.outFrom, Lost: x.lost, Stands: x.stands, StandsAt: x.standsAt,
			Rep: snapReport{At: x.rep.at, NS: x.rep.ns, Seen: x.rep.seen, Stuck: x.rep.stuck, BusyP: x.rep.busyP, BusyD: x.rep.busyD, KVUsed: x.rep.kvUsed, Flips: x.rep.flips, Problem: x.rep.problem},
		}
		for i, t := range x.rep.totals() {
			e.Rep.Totals[i] = *t
		}
		s.Execs = append(s.Execs, e)
	}
	for _, name := range p.names {
		o := p.pools[name]
		e := snapPool{
			Name: o.name, Meas: o.meas, Rules: o.rules, Flips: o.flips, Newest: o.newest, Rule: o.rule, Shown: o.shown, Advice: o.advice,
			AdvDir: o.advDir, Absorb: o.absorb, AbsAt: o.absAt, Load: snapLoad{At: o.load.at, Now: o.load.now, Seen: o.load.seen},
		}
		for i, t := range o.load.totals() {
			e.Load.Totals[i] = *t
		}
		for i, r := range o.load.rates() {
			e.Load.Rates[i] = *r
		}
		for i, l := range o.load.levels() {
			e.Load.Levels[i] = *l
		}
		s.Pools = append(s.Pools, e)
	}
	b, err := json.Marshal(&s)
	if err != nil {
		return dst, fmt.Errorf("planner snapshot: %w", err)
	}
	return append(dst, b...), nil
}

// Restore takes a snapshot. One of another version is ignored: the planner then learns
// anew, as after its first start.
func (p *Planner) Restore(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	var s snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("planner snapshot: %w", err)
	}
	if s.Version != snapVersion {
		return nil
	}
	q := New(p.cfg)
	if s.ModeSeq == 0 {
		s.Mode = q.cfg.Mode // nobody ever set one: it is this process's own
	}
	q.mode, q.modeSeq, q.plans, q.started, q.busBack, q.busGone = s.Mode, s.ModeSeq, s.Plans, s.Started, s.BusBack, s.BusGone
	q.tickAt, q.router, q.loadAt, q.loadNS, q.counts = s.TickAt, s.Router, s.LoadAt, s.LoadNS, s.Counts
	for i := range s.Execs {
		e := &s.Execs[i]
		x := q.add(e.ID)
		if x == nil || schemas.CheckID("executor", e.ID) != nil {
			return fmt.Errorf("planner snapshot: executor %q is one too many, or no id", e.ID)
		}
		*x = executor{
			id: e.ID, boot: e.Boot, pool: e.Pool, role: e.Role, epoch: e.Epoch, absorb: e.Absorb, size: e.Size, slots: e.Slots, context: e.Context,
			kv: e.KV, prefills: e.Prefills, decodes: e.Decodes, since: e.Since, lastHB: e.LastHB, alive: e.Alive, assign: e.Assign, sent: e.Sent,
			seq: e.Seq, seqAt: e.SeqAt, sentAt: e.SentAt, changed: e.Changed, hold: e.Hold, held: e.Held, unfit: e.Unfit, fitAt: e.FitAt, outFrom: e.OutFrom, lost: e.Lost, stands: e.Stands, standsAt: e.StandsAt,
			rep: report{at: e.Rep.At, ns: e.Rep.NS, seen: e.Rep.Seen, stuck: e.Rep.Stuck, busyP: e.Rep.BusyP, busyD: e.Rep.BusyD, kvUsed: e.Rep.KVUsed, flips: e.Rep.Flips, problem: e.Rep.Problem},
		}
		for j, t := range x.rep.totals() {
			*t = e.Rep.Totals[j]
		}
	}
	for i := range s.Pools {
		e := &s.Pools[i]
		o := q.pool(e.Name)
		if o == nil {
			return fmt.Errorf("planner snapshot: pool %q is one too many", e.Name)
		}
		given := o.meas.Given
		o.meas, o.rules, o.flips, o.newest, o.rule, o.shown = e.Meas, e.Rules, e.Flips, e.Newest, e.Rule, e.Shown
		o.meas.Given = given
		o.advice, o.advDir, o.absorb, o.absAt = e.Advice, e.AdvDir, e.Absorb, e.AbsAt
		o.load.at, o.load.now, o.load.seen = e.Load.At, e.Load.Now, e.Load.Seen
		for j, t := range o.load.totals() {
			*t = e.Load.Totals[j]
		}
		for j, r := range o.load.rates() {
			*r = e.Load.Rates[j]
		}
		for j, l := range o.load.levels() {
			*l = e.Load.Levels[j]
		}
	}
	sort.Strings(q.ids)
	sort.Strings(q.names)
	*p = *q
	return nil
}
