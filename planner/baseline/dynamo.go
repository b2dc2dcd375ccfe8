package baseline

import (
	"encoding/json"
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// Dynamo is the dynamo-like planner (as of 2a6da14c). It wishes for numbers of prefill
// and decode workers and has them started and stopped; what that costs, a restart with
// an empty memory, is the world's to model.
//
//	every 5 s:   load loop        each side by one worker, by thresholds (load.go)
//	every 180 s: throughput loop  both sides anew, by a forecast (throughput.go)
//	                  |
//	                  v
//	            budget clamp (clamp.go) -> assignments
//
// While any worker that should be there is not ready, nothing is decided, so it is
// blind for as long as a start takes.
type Dynamo struct {
	cfg Config
	st  state
}

type state struct {
	Roster roster
	Next   schemas.Time
	Pools  map[string]*pool
	Load   *schemas.Load
	LoadAt schemas.Time
}

// pool is the state of one pool's loops.
type pool struct {
	NextLoad, NextThroughput schemas.Time
	// LowerP and LowerD are what the throughput loop says while the load loop is on.
	LowerP, LowerD int
	Mark           *mark // the router's totals at the last throughput tick
	Forecast       forecasts
	Said           schemas.Time // of the last plan
	Rule           string
	// The load loop's last view, for plans.
	Queued, KV float64
}

// NewDynamo makes a dynamo-like planner.
func NewDynamo(cfg Config) *Dynamo {
	cfg.defaults()
	d := &Dynamo{cfg: cfg}
	d.st = state{Roster: newRoster(&d.cfg), Pools: map[string]*pool{}}
	return d
}

var _ schemas.Actor = (*Dynamo)(nil)

// Step handles one message.
func (d *Dynamo) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	st := &d.st
	st.Roster.hear(now, in)
	if in.Kind == schemas.KindLoad {
		st.Load, st.LoadAt = in.Load, now
	}
	if st.Next == 0 {
		st.Next = now + schemas.Time(d.cfg.TickNS)
	}
	if now < st.Next {
		return out
	}
	st.Next = now + schemas.Time(d.cfg.TickNS)
	if st.Roster.Mode == schemas.ModePaused {
		return out
	}
	for _, name := range st.Roster.pools() {
		out = st.Roster.start(now, name, out)
		out = d.tick(now, name, out)
	}
	return out
}

// Next is the time of the next look.
func (d *Dynamo) Next() schemas.Time { return d.st.Next }

// sides are the workers of a pool that this planner rules, by the role that they are to
// have.
type sides struct {
	prefill, decode, standby []*worker
	ready                    bool   // all of them run, under that role
	why                      string // one that is not ready
}

func (d *Dynamo) sides(now schemas.Time, name string) sides {
	s := sides{ready: true}
	for _, w := range d.st.Roster.in(name) {
		if w.Pinned || w.Seq == 0 {
			continue
		}
		want := w.Want
		if w.Sent != "" && int64(now-w.SentAt) < sentNS {
			want, s.ready, s.why = w.Sent, false, w.ID+" has an assignment under way"
		}
		switch want {
		case schemas.RolePrefill:
			s.prefill = append(s.prefill, w)
		case schemas.RoleDecode:
			s.decode = append(s.decode, w)
		case schemas.RoleStandby:
			s.standby = append(s.standby, w)
			continue // nobody waits for one that was removed
		default:
			continue
		}
		if !d.st.Roster.alive(now, w) || w.Role != want || w.Epoch != w.Seq {
			s.ready, s.why = false, w.ID+" is not ready"
		}
	}
	return s
}

func (d *Dynamo) tick(now schemas.Time, name string, out []schemas.Msg) []schemas.Msg {
	p := d.st.Pools[name]
	if p == nil {
		p = &pool{NextLoad: now + schemas.Time(d.cfg.LoadNS), NextThroughput: now + schemas.Time(d.cfg.ThroughputNS)}
		p.Forecast.init(d.cfg.Predictor)
		d.st.Pools[name] = p
	}
	loadTick, throughputTick := now >= p.NextLoad && d.cfg.loadLoop(), now >= p.NextThroughput && d.cfg.Target == TargetSLA
	if !loadTick && !throughputTick {
		return out
	}
	s := d.sides(now, name)
	wantP, wantD := len(s.prefill), len(s.decode)
	var rule, reason string
	if throughputTick {
		p.NextThroughput = now + schemas.Time(d.cfg.ThroughputNS)
		d.observe(now, name, p)
		if np, nd, why, ok := d.throughput(p, s); ok {
			rule, reason = "throughput", why
			if d.cfg.loadLoop() {
				p.LowerP, p.LowerD = np, nd
			} else {
				wantP, wantD = np, nd
			}
		}
	}
	if loadTick {
		p.NextLoad = now + schemas.Time(d.cfg.LoadNS)
		if s.ready {
			dp, dd, why := d.load(now, name, p, s)
			wantP, wantD = max(wantP+dp, p.LowerP), max(wantD+dd, p.LowerD)
			if dp != 0 || dd != 0 || reason == "" {
				rule, reason = "load", why
			}
		}
	}
	if !s.ready {
		return d.say(now, name, p, s, "not_ready", s.why, out)
	}
	if len(s.prefill)+len(s.decode) == 0 {
		return out
	}
	np, nd := d.budget(s).Clamp(max(wantP, d.cfg.MinEndpoint), max(wantD, d.cfg.MinEndpoint))
	if np == 0 || nd == 0 || np == len(s.prefill) && nd == len(s.decode) {
		if wantP != len(s.prefill) || wantD != len(s.decode) {
			rule, reason = "budget", fmt.Sprintf("%s; the budget keeps %d:%d", reason, len(s.prefill), len(s.decode))
		}
		return d.say(now, name, p, s, rule, reason, out)
	}
	p.Said, p.Rule = now, rule
	return d.st.Roster.decide(now, name, rule, fmt.Sprintf("%s; %d:%d becomes %d:%d", reason, len(s.prefill), len(s.decode), np, nd),
		d.inputs(now, p, s), moves(s, np, nd), out)
}

// sayNS is how often a planner that does nothing says so.
const sayNS = 60_000_000_000

// say publishes a decision to change nothing, when its rule is another one or a minute
// has passed.
func (d *Dynamo) say(now schemas.Time, name string, p *pool, s sides, rule, reason string, out []schemas.Msg) []schemas.Msg {
	if rule == p.Rule && int64(now-p.Said) < sayNS {
		return out
	}
	p.Said, p.Rule = now, rule
	return d.st.Roster.decide(now, name, rule, reason, d.inputs(now, p, s), nil, out)
}

// budget is that of the whole pool: what its workers that are not pinned have.
func (d *Dynamo) budget(s sides) Budget {
	gpus, n := 0, 0
	for _, ws := range [...][]*worker{s.prefill, s.decode, s.standby} {
		for _, w := range ws {
			gpus, n = gpus+max(1, w.Size), n+1
		}
	}
	each := max(1, gpus/max(1, n)) // its workers of one side are all of one size
	b := Budget{PrefillGPUs: each, DecodeGPUs: each, Min: each * n, Max: each * n, MinPrefill: d.cfg.MinEndpoint, MinDecode: d.cfg.MinEndpoint}
	if d.cfg.FloorOff {
		b.Min = -1
	}
	return b
}

// moves are the role changes that lead to np and nd workers. Of one side the ones with
// the highest ids are removed; new ones take what is free first, then what was removed.
func moves(s sides, np, nd int) []schemas.RoleChange {
	type leaving struct {
		w    *worker
		from schemas.Role
	}
	var free []leaving
	for _, w := range s.standby {
		free = append(free, leaving{w, schemas.RoleStandby})
	}
	idle := len(free)
	for len(s.prefill) > np {
		last := len(s.prefill) - 1
		free = append(free, leaving{s.prefill[last], schemas.RolePrefill})
		s.prefill = s.prefill[:last]
	}
	for len(s.decode) > nd {
		last := len(s.decode) - 1
		free = append(free, leaving{s.decode[last], schemas.RoleDecode})
		s.decode = s.decode[:last]
	}
	var out []schemas.RoleChange
	add := func(to schemas.Role, n int) {
		for ; n > 0 && len(free) > 0; n-- {
			f := free[0]
			free = free[1:]
			idle = max(0, idle-1)
			out = append(out, schemas.RoleChange{Executor: f.w.ID, From: f.from, To: to, Why: "a worker is stopped and one with this role started"})
		}
	}
	add(schemas.RolePrefill, np-len(s.prefill))
	add(schemas.RoleDecode, nd-len(s.decode))
	for _, f := range free[idle:] {
		out = append(out, schemas.RoleChange{Executor: f.w.ID, From: f.from, To: schemas.RoleStandby, Why: "the worker is stopped"})
	}
	return out
}

func (d *Dynamo) inputs(now schemas.Time, p *pool, s sides) schemas.PlanInput {
	in := schemas.PlanInput{
		Executors: len(s.prefill) + len(s.decode) + len(s.standby), Prefill: float64(len(s.prefill)), Decode: float64(len(s.decode)),
		BacklogP: p.Queued, KV: p.KV, LoadMS: int64(now-d.st.LoadAt) / 1e6, SinceMS: int64(now-p.Said) / 1e6, Confident: s.ready,
	}
	in.Size = float64(in.Executors)
	for _, w := range append(append([]*worker{}, s.prefill...), s.decode...) {
		if w.Report != nil {
			in.ReportMS = max(in.ReportMS, (int64(now)-w.Report.AtNS)/1e6)
		}
	}
	return in
}

// Snapshot appends the state as JSON.
func (d *Dynamo) Snapshot(dst []byte) ([]byte, error) {
	b, err := json.Marshal(d.st)
	return append(dst, b...), err
}

// Restore continues from a snapshot.
func (d *Dynamo) Restore(b []byte) error {
	st := state{Roster: newRoster(&d.cfg), Pools: map[string]*pool{}}
	if err := json.Unmarshal(b, &st); err != nil {
		return err
	}
	for _, p := range st.Pools {
		if p == nil || !p.Forecast.whole() {
			return fmt.Errorf("baseline: the snapshot has a pool without forecasts")
		}
	}
	st.Roster.cfg = &d.cfg
	d.st = st
	return nil
}
