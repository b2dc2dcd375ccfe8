package plan

import (
	"slices"
	"sort"

	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/planner/flip"
	"github.com/weir-dev/weir/schemas"
)

// Planner is the actor that gives executors their roles.
type Planner struct {
	cfg   Config
	execs map[string]*executor
	ids   []string // of execs, sorted: the order of every search
	pools map[string]*pool
	names []string // of pools, sorted

	mode    schemas.Mode
	modeSeq uint64
	plans   uint64 // decisions so far

	started schemas.Time // first step
	busBack schemas.Time // the bus was away until then
	busGone bool
	tickAt  schemas.Time
	router  uint64       // epoch of the router that was heard last
	loadAt  schemas.Time // when its load came
	loadNS  int64        // its own time

	counts Counts
}

// Counts are totals since the start.
type Counts struct {
	Decisions, Changes, Refused, GivenUp, Ignored uint64
	// BadReports and BadLoads were not used: what they said cannot be.
	BadReports, BadLoads uint64
}

// executor is what the planner knows of one executor.
type executor struct {
	id, boot, pool string
	role           schemas.Role // that it reports, draining in between
	epoch          uint64       // of the assignment in force
	absorb         schemas.SizeClass
	size           float64
	slots, context int
	kv             int
	prefills       int // turns that it holds, by stage
	decodes        int
	since          schemas.Time // first heartbeat of this life
	lastHB         schemas.Time
	alive          bool

	assign *schemas.Assignment // the last one on ROLE, and its sequence
	seq    uint64
	seqAt  schemas.Time // when it was seen
	// sent: an assignment that was published and not confirmed yet.
	sent   *schemas.Assignment
	sentAt schemas.Time

	// stands is the sequence that refused a publish, if it is not seq; and since when it is
	// known. It is that of an assignment on its way here, or of one that cannot be read, or 0:
	// nothing stands on ROLE.
	stands   uint64
	standsAt schemas.Time

	lost    uint64       // sequence of an assignment that was given up
	changed schemas.Time // last change of role by this planner
	hold    schemas.Time // it is left alone until then
	held    string       // and why

	unfit   string // by its report
	fitAt   schemas.Time
	outFrom schemas.Role // role that it had when it was taken out of work

	rep report
}

// pool is what the planner knows of one pool.
type pool struct {
	name  string
	load  load
	meas  demand.Measured
	rules flip.State
	flips costs

	newest schemas.Time // when an executor was first heard last
	rule   string
	shown  schemas.Time // last published decision
	advice float64      // worker seconds that acting would have brought
	advDir int
	absorb schemas.SizeClass // that decode executors should have
	absAt  schemas.Time      // since when that differs from what they have
}

// New makes a planner that knows nothing yet.
func New(cfg Config) *Planner {
	cfg.defaults()
	return &Planner{cfg: cfg, execs: map[string]*executor{}, pools: map[string]*pool{}, mode: cfg.Mode}
}

var _ schemas.Actor = (*Planner)(nil)

// Counts returns the totals since the start.
func (p *Planner) Counts() Counts { return p.counts }

// Mode returns the mode in force.
func (p *Planner) Mode() schemas.Mode { return p.mode }

// Step handles one message.
func (p *Planner) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	if p.started == 0 {
		p.started, p.busBack, p.tickAt = now, now, now+schemas.Time(p.cfg.Tick)
	}
	if int64(now-p.tickAt) > int64(p.cfg.Silent) {
		// This process stood still: what was sent in that time is still to be read.
		p.busBack = now
	}
	switch in.Kind {
	case schemas.KindHeartbeat:
		p.heartbeat(now, in.Heartbeat)
	case schemas.KindReport:
		p.report(now, in.Report)
	case schemas.KindLoad:
		p.readLoad(now, in.Load)
	case schemas.KindAssignment:
		p.assigned(now, in)
	case schemas.KindMode:
		if in.Seq >= p.modeSeq && in.Mode.Check() == nil {
			p.mode, p.modeSeq = in.Mode.Mode, in.Seq
		}
	case schemas.KindPublished:
		p.published(now, in)
	case schemas.KindBus:
		p.busGone = in.Err != ""
		p.busBack = now
	default:
		// Ticks, and messages for others.
	}
	if now >= p.tickAt {
		p.tickAt = now + schemas.Time(p.cfg.Tick)
		out = p.decide(now, out)
	}
	return out
}

// Next is the time of the next decision.
func (p *Planner) Next() schemas.Time { return p.tickAt }

// heartbeat notes who lives.
func (p *Planner) heartbeat(now schemas.Time, m *schemas.Heartbeat) {
	x := p.execs[m.Executor]
	if m.Dead {
		if x != nil && x.boot == m.Boot {
			x.alive = false
		}
		return
	}
	if x == nil {
		if x = p.add(m.Executor); x == nil {
			return
		}
	}
	if x.boot != m.Boot || !x.alive || x.pool != m.Pool {
		if x.boot != m.Boot {
			x.rep = report{}
			x.since = now
		}
		x.boot, x.pool = m.Boot, m.Pool
		if o := p.pool(m.Pool); o != nil {
			o.newest = now
		}
	}
	x.alive, x.lastHB = true, now
	if x.assign == nil && m.Epoch > x.seq {
		x.seq = m.Epoch // it was forgotten, and what it does is the last that stands on ROLE
	}
	x.role, x.epoch, x.absorb = m.Role, m.Epoch, m.Absorb
	x.size = float64(min(max(1, m.Size), 1<<16)) / p.unit(m.Pool)
	x.slots, x.context, x.kv = max(0, m.Slots), max(0, m.Context), max(0, m.KVTokens)
	x.prefills, x.decodes = 0, 0
	for i := range m.Held {
		if m.Held[i].Stage == schemas.StagePrefill {
			x.prefills++
		} else {
			x.decodes++
		}
	}
}

func (p *Planner) add(id string) *executor {
	if len(p.execs) >= p.cfg.MaxExecutors {
		p.counts.Ignored++
		return nil
	}
	x := &executor{id: id, size: 1}
	p.execs[id] = x
	p.ids = append(p.ids, id)
	sort.Strings(p.ids)
	return x
}

func (p *Planner) pool(name string) *pool {
	if o := p.pools[name]; o != nil {
		return o
	}
	if len(p.pools) >= p.cfg.MaxPools {
		p.counts.Ignored++
		return nil
	}
	o := &pool{name: name, absorb: schemas.SizeS}
	o.meas.Given = p.cfg.Model
	if m, ok := p.cfg.Models[name]; ok {
		o.meas.Given = m
	}
	p.pools[name] = o
	p.names = append(p.names, name)
	sort.Strings(p.names)
	return o
}

// unit is how many accelerators count as size 1 in a pool: as many as the executor has
// of which its costs are known, so that the figures are those of whole executors.
func (p *Planner) unit(name string) float64 {
	if o := p.pools[name]; o != nil {
		return o.meas.Given.Unit()
	}
	return 1
}

// assigned takes what stands on ROLE, whoever wrote it.
func (p *Planner) assigned(now schemas.Time, in *schemas.Msg) {
	s, err := schemas.ParseSubject(in.Subject)
	if err != nil || in.Assignment.Check() != nil {
		return
	}
	x := p.execs[s.Get("executor")]
	if x == nil {
		if x = p.add(s.Get("executor")); x == nil {
			return
		}
	}
	if in.Seq <= x.seq {
		return
	}
	a := in.Assignment
	if a.By != by && a.By != "" && x.lastHB != 0 && int64(now-p.started) > int64(p.cfg.Grace) && (x.assign == nil || x.assign.Role != a.Role) {
		x.hold, x.held = now+schemas.Time(p.cfg.Hand), "set by "+a.By
	}
	switch {
	case a.By != by:
		x.outFrom = "" // people took it over: it goes nowhere back when it is fit again
	case x.outFrom == "" && a.Role == schemas.RoleStandby:
		x.outFrom = schemas.RoleDecode // by a planner before this one
	}
	x.assign, x.seq, x.seqAt, x.standsAt = a, in.Seq, now, 0
	if x.sent != nil && (a.By != by || a.Plan == x.sent.Plan) {
		x.sent = nil
	}
}

// by is how the planner signs assignments.
const by = "planner"

// published learns how the publish of an assignment ended.
func (p *Planner) published(now schemas.Time, in *schemas.Msg) {
	s, err := schemas.ParseSubject(in.Subject)
	if err != nil || s.Root != schemas.RootRole {
		return
	}
	x := p.execs[s.Get("executor")]
	if x == nil || x.sent == nil {
		return
	}
	if in.Err == "" {
		if in.Seq > x.seq {
			x.assign, x.seq, x.seqAt, x.standsAt = x.sent, in.Seq, now, 0
		}
	} else {
		// Somebody was first, and what they wrote is on its way; or the stream refuses, and the
		// next decision sees what stands.
		p.counts.Refused++
		if in.Err == schemas.ErrTextConflict && (x.standsAt == 0 || in.Seq != x.stands) {
			x.stands, x.standsAt = in.Seq, now
		}
	}
	x.sent = nil
}

// replaces is the sequence that the next assignment names as the one before it. It is the
// last that was read, unless another stood in the way and has not come for so long that it
// cannot be read, or nothing stood there: the stream lost what was.
func (p *Planner) replaces(now schemas.Time, x *executor) uint64 {
	wait := p.cfg.Unread
	if x.stands == 0 {
		wait = p.cfg.Grace
	}
	if x.standsAt != 0 && int64(now-x.standsAt) >= int64(wait) {
		return x.stands
	}
	return x.seq
}

// forget drops executors that are away for long, so that names do not pile up.
func (p *Planner) forget(now schemas.Time) {
	p.ids = slices.DeleteFunc(p.ids, func(id string) bool {
		x := p.execs[id]
		last := max(x.lastHB, x.seqAt)
		if x.alive || int64(now-last) <= int64(p.cfg.Forget) {
			return false
		}
		if x.assign != nil && x.assign.Pinned && 2*len(p.execs) <= p.cfg.MaxExecutors {
			return false // it is to be found pinned when it comes back
		}
		delete(p.execs, id)
		return true
	})
	p.names = slices.DeleteFunc(p.names, func(name string) bool {
		o := p.pools[name]
		for _, id := range p.ids {
			if p.execs[id].pool == name {
				return false
			}
		}
		if int64(now-max(o.newest, o.load.at)) <= int64(p.cfg.Forget) {
			return false
		}
		delete(p.pools, name)
		return true
	})
}

// target is the role that x has or is about to have.
func (x *executor) target() schemas.Role {
	switch {
	case x.sent != nil:
		return x.sent.Role
	case x.lost != 0 && x.lost == x.seq && works(x.role):
		return x.role
	case x.assign != nil && x.seq > 0:
		return x.assign.Role
	case x.role == schemas.RoleDraining:
		return schemas.RoleStandby
	}
	return x.role
}

// flying: its role is changing.
func (x *executor) flying() bool {
	if x.sent != nil {
		return true
	}
	return (x.lost == 0 || x.lost != x.seq) && (x.role == schemas.RoleDraining || x.assign != nil && x.seq > x.epoch)
}
