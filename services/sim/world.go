package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/simgpu"
	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/simrun"
)

const (
	cell = schemas.DefaultCell
	pool = "model"
)

// world is one cell under simulation.
type world struct {
	sc    *Scenario
	sys   System
	o     Options
	cal   *calib.Calibration
	sim   *simrun.Sim
	start schemas.Time
	execs []*exec
	front *front
	mem   *memory
	rec   *recorder
	check *checker

	periodS, durationS, discardS float64 // duration is 0 for fixed work
	evicted                      int64   // blocks
	restarts                     int
	load                         *schemas.Load
}

// exec is one executor of the world and what is known of it from outside.
type exec struct {
	id     string
	n      int
	boots  int
	dev    device
	links  *simgpu.Links
	role   schemas.Role // of its last heartbeat
	before schemas.Role // of the last one that was not draining
	drains schemas.Time
	beat   schemas.Time
	idle   schemas.Time
	report *schemas.Report
	away   bool // it restarts

	busyP, busyD int64 // engine time by role, or by operation of one that does both, ns
}

// device does an executor's operations.
type device interface {
	Start(now schemas.Time, op *schemas.Op, done func(schemas.OpDone))
}

func newWorld(sc *Scenario, sys System, o Options) (*world, error) {
	if o.Load == 0 {
		o.Load = 1
	}
	if o.MaxS == 0 {
		o.MaxS = 6 * 3600
	}
	w := &world{sc: sc, sys: sys, o: o, cal: o.Cal}
	if err := w.valid(); err != nil {
		return nil, err
	}
	w.spans()
	var err error
	if w.sim, err = simrun.New(simrun.Options{
		Seed: o.Seed, Topology: topology(), ShareBodies: o.Log == nil, Log: o.Log,
		Net: simrun.Net{MinDelay: millis(cmp.Or(sc.Signals.BusDelayMS[0], 0.2)), MaxDelay: millis(cmp.Or(sc.Signals.BusDelayMS[1], 1))},
	}); err != nil {
		return nil, err
	}
	w.start = w.sim.Now()
	for i := range sc.Cluster.Workers {
		w.execs = append(w.execs, &exec{id: fmt.Sprintf("e%03d", i), n: i, role: schemas.RoleStandby})
	}
	w.check = &checker{w: w}
	w.rec = newRecorder(w, len(sc.Phases))
	w.mem = newMemory(w)
	w.front = newFront(w)
	w.rec.from = w.start + startNS + schemas.Time(w.discardS*1e9)
	if w.durationS > 0 {
		w.rec.to = w.start + startNS + schemas.Time(w.durationS*1e9)
	}
	return w, w.begin()
}

func millis(ms float64) time.Duration { return time.Duration(ms * 1e6) }

func (w *world) valid() error {
	s := &w.sys
	n := w.sc.Cluster.Workers
	switch {
	case w.cal == nil:
		return fmt.Errorf("%w: no calibration", ErrScenario)
	case !s.Mixed && (s.Prefill < 1 || s.Prefill >= n):
		return fmt.Errorf("%w: system %s begins with %d executors that prefill; with %d it is 1 to %d", ErrScenario, s.Name, s.Prefill, n, n-1)
	case s.Tier != TierShared && s.Tier != TierPrivate && s.Tier != TierNone:
		return fmt.Errorf("%w: tier is %q; known are shared, private, none", ErrScenario, s.Tier)
	case s.Order != OrderWeir && s.Order != OrderLRU && s.Tier != TierNone:
		return fmt.Errorf("%w: order is %q; known are weir, lru", ErrScenario, s.Order)
	case s.Mixed && s.Planner != nil:
		return fmt.Errorf("%w: system %s is mixed and has a planner", ErrScenario, s.Name)
	}
	if err := w.o.valid(); err != nil {
		return err
	}
	for i := range w.sc.Phases {
		p := &w.sc.Phases[i]
		if n := float64(cmp.Or(p.Concurrency, w.o.Concurrency)) * w.o.Load; n > maxSessions {
			return fmt.Errorf("%w: %s: phases[%d] has %.0f sessions at once, allowed are %d", ErrScenario, w.sc.Name, i, n, maxSessions)
		}
		for name, s := range p.Mix {
			if n := max(s[0], s[1]) * w.o.Load; n > maxSessions {
				return fmt.Errorf("%w: %s: phases[%d] has %.0f sessions of %s at once, allowed are %d", ErrScenario, w.sc.Name, i, n, name, maxSessions)
			}
		}
		if p.Workload != "" && p.Concurrency == 0 && w.o.Concurrency == 0 {
			return fmt.Errorf("%w: %s: phases[%d] names no concurrency, so the run must be told one", ErrScenario, w.sc.Name, i)
		}
	}
	return nil
}

// maxSessions at once of one phase: some 10 KiB are kept of each.
const maxSessions = 100_000

func (o *Options) valid() error {
	switch {
	case !(o.Load > 0) || math.IsInf(o.Load, 0):
		return fmt.Errorf("%w: load is %g, it is a factor above 0", ErrScenario, o.Load)
	case !(o.PeriodS >= 0) || math.IsInf(o.PeriodS, 0):
		return fmt.Errorf("%w: the period is %g s, it is a number above 0, or 0 for the scenario's", ErrScenario, o.PeriodS)
	case o.Concurrency < 0:
		return fmt.Errorf("%w: %d sessions at once, it is a number above 0, or 0 for the scenario's", ErrScenario, o.Concurrency)
	}
	return nil
}

// spans finds how long the run is, what of it is discarded, and the period.
func (w *world) spans() {
	w.durationS, w.discardS = w.sc.DurationS, w.sc.DiscardS
	for i := range w.sc.Phases {
		p := &w.sc.Phases[i]
		if p.Sessions > 0 {
			w.durationS, w.discardS = 0, 0
			return
		}
		w.durationS = max(w.durationS, p.DurationS)
		w.discardS = max(w.discardS, p.DiscardS)
	}
	if w.durationS == 0 {
		w.durationS = 3600
	}
	if len(w.sc.Phases) > 1 {
		w.periodS = w.o.PeriodS
		for _, p := range w.sc.PeriodGridS {
			if w.o.PeriodS == 0 {
				w.periodS = max(w.periodS, p)
			}
		}
		if w.periodS == 0 {
			w.periodS = w.durationS
		}
	}
}

// topology keeps less than a live one: nobody reads old answers and frames here.
func topology() []streams.Stream {
	short := 20 * time.Second
	return streams.Topology(streams.Options{MaxAge: map[string]time.Duration{
		streams.Result: short, streams.Out: time.Second, streams.Ckpt: short, streams.Prefill: short, streams.Decode: short,
		streams.Done: short, streams.KV: short, streams.Plan: short,
	}})
}

func (w *world) since(t schemas.Time) float64 { return seconds(t - w.start - startNS) }

// session of a turn.
func (w *world) session(r *schemas.Ready) *session { return w.front.sessions[r.Session] }

// output is the true length of an answer; only devices may know it.
func (w *world) output(r *schemas.Ready) int { return w.session(r).output }

func (w *world) begin() error {
	for i, e := range w.execs {
		role := schemas.RoleDecode
		switch {
		case w.sys.Mixed:
			role = schemas.RoleMixed
		case i < w.sys.Prefill:
			role = schemas.RolePrefill
		}
		if _, err := w.sim.PublishMsg(&schemas.Msg{
			Kind: schemas.KindAssignment, Subject: schemas.RoleSubject(cell, e.id),
			Assignment: &schemas.Assignment{Header: schemas.H(), Role: role, By: "scenario", Reason: "the split at the start"},
		}); err != nil {
			return err
		}
	}
	if err := w.sim.Start(simrun.Service{
		Name: "front", Actor: w.front, Inputs: []streams.Input{{Stream: streams.Result, Policy: streams.NoAck, Deliver: streams.DeliverNew}},
	}); err != nil {
		return err
	}
	if err := w.startRouter(); err != nil {
		return err
	}
	for _, e := range w.execs {
		if err := w.startExec(e); err != nil {
			return err
		}
	}
	return w.startPlanner()
}

func (w *world) startRouter() error {
	return w.sim.Start(simrun.Service{
		Name: "router", Actor: route.New(w.routes()),
		Inputs: []streams.Input{
			{
				Stream: streams.Ready, Filters: []string{schemas.ReadySubject(cell, "*", "*", "*")}, Durable: "router-" + cell,
				Policy: streams.Hold, Recreate: true, AckWait: 24 * time.Hour, MaxAckPending: 1 << 20,
			},
			{Stream: streams.Done, Filters: []string{schemas.DoneSubject(cell, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Stream: streams.Result, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Stream: streams.KV, Filters: []string{schemas.KVSubject(cell, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Core: true, Filters: []string{schemas.HBSubject(cell, "*"), schemas.BranchSubject(cell, "*")}},
		},
		OnOut: func(_, out *schemas.Msg) {
			w.check.routed(out)
			if out.Kind == schemas.KindLoad {
				w.load = out.Load
			}
		},
		Local: func(_ schemas.Time, op *schemas.Op) (schemas.OpDone, time.Duration) {
			d := schemas.OpDone{ID: op.ID}
			if op.Sync == nil {
				d.Err = "no such operation"
				return d, 0
			}
			for _, n := range w.mem.nodes {
				if n.id == op.Sync.Node {
					d.Sync = n.note.list()
				}
			}
			return d, time.Millisecond
		},
	})
}

// routes is the system's configuration of the router, with what an engine of this size
// needs where the system says nothing. A worker computes one prompt per attention rank
// side by side, or several small ones: with room for few prompts, or few tokens, ranks
// stand idle beside a long one, and steps of many and of few prompts take turns.
func (w *world) routes() route.Config {
	c := w.sys.Route
	c.Cell, c.Handover, c.Admit = cell, true, c.Admit || w.sys.Admit
	ranks, chunk := max(1, w.cal.Layout.AttnDP), w.chunk()
	c.PrefillJobs = cmp.Or(c.PrefillJobs, max(1, 8*ranks/max(1, w.cal.Layout.GPUs))) // per accelerator
	c.PrefillTokens = cmp.Or(c.PrefillTokens, 8*ranks*chunk)
	c.PrefillTPS = cmp.Or(c.PrefillTPS, float64(ranks*chunk)/0.6)
	return c
}

// chunk is the most tokens that one rank computes in a prefill step.
func (w *world) chunk() int { return cmp.Or(int(w.cal.Range.N[1]), 8192) }

func (w *world) startExec(e *exec) error {
	e.boots++
	e.dev = simgpu.New(w.engineConfig(e))
	var actor schemas.Actor = gpuexec.NewExecutor(w.execConfig(e))
	if w.sys.Restart > 0 {
		actor = &restarting{Actor: actor, w: w, e: e}
	}
	return w.sim.Start(simrun.Service{
		Name: e.id, Actor: actor,
		Inputs: []streams.Input{
			{Stream: streams.Role, Filters: []string{schemas.RoleSubject(cell, e.id)}, Policy: streams.NoAck, Deliver: streams.DeliverLastPerSubject},
			{Stream: streams.Prefill, Filters: []string{schemas.JobSubject(schemas.StagePrefill, cell, e.id, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Stream: streams.Decode, Filters: []string{schemas.JobSubject(schemas.StageDecode, cell, e.id, "*")}, Policy: streams.NoAck, Deliver: streams.DeliverNew},
			{Core: true, Filters: []string{schemas.CancelSubject(cell, e.id)}},
		},
		OnOut:      func(_, out *schemas.Msg) { w.check.sent(e, out) },
		LocalAsync: func(now schemas.Time, op *schemas.Op, done func(schemas.OpDone)) { w.operate(e, now, op, done) },
	})
}

// operate answers what an executor asks of the world, and hands the rest to its device.
func (w *world) operate(e *exec, now schemas.Time, op *schemas.Op, done func(schemas.OpDone)) {
	w.check.ops++
	switch {
	case op.Delivered != nil:
		q := op.Delivered
		d := schemas.OpDone{ID: op.ID, Delivered: &schemas.DeliveredDone{Finished: true}}
		if x := w.front.flights[schemas.JobID(q.Tenant, q.Session, q.Turn)]; x != nil {
			*d.Delivered = schemas.DeliveredDone{Tokens: zeros[:max(x.got, x.saved)]}
		}
		w.sim.Timer(now+schemas.Time(time.Millisecond), func() { done(d) })
		return
	case op.Tokens != nil:
		d := schemas.OpDone{ID: op.ID, Tokens: &schemas.TokensReply{Header: schemas.H(), From: op.Tokens.From, Tokens: zeros[op.Tokens.From:op.Tokens.To]}}
		w.sim.Timer(now+schemas.Time(time.Millisecond), func() { done(d) })
		return
	case op.Open != nil:
		w.check.opens(e, op.Open)
	}
	prefill, decode := op.Prefill != nil, op.Decode != nil
	e.dev.Start(now, op, func(d schemas.OpDone) {
		switch {
		case !prefill && !decode:
		case e.before == schemas.RoleDecode || decode && e.before != schemas.RolePrefill:
			e.busyD += d.TookNS // also with prompts that it absorbs
		default:
			e.busyP += d.TookNS
		}
		done(d)
	})
}

func (w *world) startPlanner() error {
	if w.sys.Planner == nil {
		return nil
	}
	var ids []string
	for _, e := range w.execs {
		ids = append(ids, e.id)
	}
	return w.sim.Start(simrun.Service{
		Name: "planner", Actor: w.sys.Planner(cell, ids),
		Inputs: []streams.Input{
			{Core: true, Filters: []string{schemas.HBSubject(cell, "*")}},
			{
				Stream: streams.Report, Filters: []string{schemas.ReportSubject(cell, "*"), schemas.LoadSubject(cell)},
				Policy: streams.NoAck, Deliver: streams.DeliverLastPerSubject,
			},
			{
				Stream: streams.Role, Filters: []string{schemas.RoleSubject(cell, "*"), schemas.ModeSubject(cell)},
				Policy: streams.NoAck, Deliver: streams.DeliverLastPerSubject,
			},
		},
		OnOut: func(_, out *schemas.Msg) {
			if out.Kind == schemas.KindPlan && w.o.Plans != nil {
				w.o.Plans(time.Duration(w.sim.Now()-w.start-startNS), out.Plan)
			}
		},
	})
}

// step is how much virtual time passes between two looks at the outside.
const step = time.Second

func (w *world) run(ctx context.Context) (*Figures, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := w.sim.RunFor(step); err != nil {
			return nil, err
		}
		at := w.since(w.sim.Now())
		if w.o.Progress != nil {
			w.o.Progress(w.progress())
		}
		if len(w.check.broke) > 0 {
			return w.figures(), fmt.Errorf("%w: %s on %s, seed %d: %s", ErrInvariant, w.sys.Name, w.sc.Name, w.o.Seed, strings.Join(w.check.broke, "; "))
		}
		if w.durationS > 0 && at >= w.durationS || w.durationS == 0 && w.front.ended == w.front.spawn.of {
			break
		}
		if at > w.o.MaxS {
			return w.figures(), fmt.Errorf("%w: %s on %s: %d of %d sessions in %.0f s", ErrTooLong, w.sys.Name, w.sc.Name, w.front.ended, w.front.spawn.of, at)
		}
	}
	return w.figures(), w.atEnd()
}

func (w *world) progress() Progress {
	p := Progress{At: time.Duration(w.sim.Now() - w.start - startNS), Turns: len(w.rec.all.e2e), Sessions: w.front.ended, Of: w.front.spawn.of}
	if p.Of > 0 {
		p.Share = float64(p.Sessions) / float64(p.Of)
	} else {
		p.Share = w.since(w.sim.Now()) / w.durationS
	}
	return p
}

// atEnd checks what can be checked only then.
func (w *world) atEnd() error {
	var errs []error
	for _, n := range w.mem.nodes {
		if err := n.check(); err != nil {
			errs = append(errs, fmt.Errorf("%w: 3: %w", ErrInvariant, err))
		}
	}
	if dead := w.sim.Stored(streams.Dead); len(dead) > 0 {
		errs = append(errs, fmt.Errorf("%w: 11: %d dead letters, the first on %s", ErrInvariant, len(dead), dead[0].Subject))
	}
	if w.durationS == 0 && len(w.front.flights) > 0 {
		errs = append(errs, fmt.Errorf("%w: 1: %d turns are without a result", ErrInvariant, len(w.front.flights)))
	}
	return errors.Join(errs...)
}
