package route

import (
	"slices"

	"github.com/weir-dev/weir/planner/admit"
	"github.com/weir-dev/weir/schemas"
)

// Router is the actor that places turns.
type Router struct {
	cfg     Config
	turns   map[string]*turn
	waiting int  // turns that wait
	late    heap // turns with a deadline
	failing []*turn
	execs   map[string]*executor
	ids     []string // of execs, sorted: the order of every search
	next    uint64

	started schemas.Time // first step
	busBack schemas.Time // the bus was away until then
	busGone bool
	tickAt  schemas.Time
	loadAt  schemas.Time // next publish of the load
	bookAt  schemas.Time // next look for idle sessions
	counts  Counts

	pools  []*pool // in order of their names
	byName map[string]*pool

	stamp      uint64       // of the last view
	now        schemas.Time // of the message in hand
	fair       *admit.Fair
	viewed     *turn // in view, see view
	outside    viewGiver
	beats      uint64  // heartbeats that were compared
	skipped    []*turn // scratch of placeIn
	waits      []need
	candidates []Candidate // scratch of chosen
	choices    []*executor

	dir     *directory
	opID    uint64  // of the last question to a node
	engines engines // which sequences stay in which engines
}

// Counts are totals since the start.
type Counts struct {
	Placed, Replaced, Returned, Poisoned, Failed, Finished, Deaths, Silent, Lost, Ignored uint64
	// Gaps in the notices of nodes; Syncs: lists that were asked for; SyncsFailed of
	// them. Brought: jobs that were to bring blocks in from another node; Broken: jobs
	// that found fewer blocks than the directory said.
	Gaps, Syncs, SyncsFailed, Brought, Broken uint64
}

// New makes a router that knows nothing yet.
func New(cfg Config) *Router {
	cfg.defaults()
	return &Router{
		cfg: cfg, turns: map[string]*turn{}, execs: map[string]*executor{}, dir: newDirectory(&cfg), byName: map[string]*pool{},
		engines: engines{}, late: heap{by: byDeadline}, fair: admit.NewFair(cfg.Fair),
	}
}

var _ schemas.Actor = (*Router)(nil)

// Counts returns the totals since the start.
func (r *Router) Counts() Counts { return r.counts }

// Load returns the number of turns that wait and that are placed.
func (r *Router) Load() (waiting, placed int) {
	return r.waiting, len(r.turns) - r.waiting
}

// Step handles one message.
func (r *Router) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	r.now = now
	if r.started == 0 {
		r.started, r.busBack, r.tickAt = now, now, now
	}
	if int64(now-r.tickAt) > r.cfg.PauseNS {
		// This process stood still: the heartbeats of that time are still to be read.
		r.busBack = now
	}
	switch in.Kind {
	case schemas.KindReady:
		out = r.ready(now, in, out)
	case schemas.KindHeartbeat:
		out = r.heartbeat(now, in.Heartbeat, out)
	case schemas.KindDone:
		out = r.done(now, in.Done, out)
	case schemas.KindResult:
		out = r.result(in.Result, out)
	case schemas.KindKV:
		r.notice(in.KV)
	case schemas.KindBranch:
		r.branch(now, in.Branch)
	case schemas.KindOpDone:
		out = r.synced(now, in.OpDone, out)
	case schemas.KindPublished:
		out = r.published(in, out)
	case schemas.KindBus:
		r.busGone = in.Err != ""
		r.busBack = now
	default:
		// Ticks, and messages for others.
	}
	if now >= r.tickAt {
		r.tickAt = now + schemas.Time(r.cfg.TickNS)
		out = r.reap(now, out)
		r.unpark(now)
		r.dir.due = true
		for _, p := range r.pools {
			p.look = true
		}
		if r.cfg.Admit && now >= r.bookAt {
			r.bookAt = now + 1_000_000_000
			for _, p := range r.pools {
				p.book.Tick(now)
			}
		}
	}
	if r.dir.due {
		r.dir.due = false
		out = r.syncs(now, out)
	}
	return r.publishLoad(now, r.place(now, out))
}

// Next is the time of the next look at liveness and deadlines.
func (r *Router) Next() schemas.Time { return r.tickAt }

// Snapshot is empty: READY and heartbeats hold all that is needed.
func (r *Router) Snapshot(dst []byte) ([]byte, error) { return dst, nil }

// Restore accepts any snapshot.
func (r *Router) Restore([]byte) error { return nil }

// settled tells whether every living executor has had time to say what it holds.
// Until then a turn that was admitted before the router started is not placed:
// it may be running.
func (r *Router) settled(now schemas.Time) bool {
	return int64(now-r.started) >= r.cfg.GraceNS
}

func (r *Router) ready(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	m := in.Ready
	t := r.turns[m.Job]
	if m.Cancel {
		// The cancel message itself is finished with the turn, or at once.
		if t == nil {
			return append(out, ack(in.Seq))
		}
		out = append(out, ack(in.Seq))
		return r.fail(now, t, &schemas.Failure{Code: schemas.CodeCancelled, Message: "cancelled: " + m.Reason}, out)
	}
	if t != nil {
		if t.seq != in.Seq {
			out = append(out, ack(t.seq)) // published twice: the newer copy stands for the turn
		}
		t.seq = in.Seq
		return out
	}
	t = &turn{ready: m, seq: in.Seq, trace: in.Trace, order: r.next, stage: schemas.StagePrefill}
	t.ends = endsOf(&m.Prompt)
	t.rendered()
	// Without names of blocks nothing can be handed over.
	t.local, t.bound = m.Prompt.Uncached, m.Prompt.Uncached
	if m.AdmittedNS < int64(r.started) {
		t.old = true
		// Earlier routers may have tried it, each at most MaxAttempts times and once per
		// WorkedNS, and each but the first only after its grace. So this one starts above them
		// all: an attempt that was used twice would be taken for a duplicate by the
		// streams, and frames of a lower one would be dropped by readers.
		t.used = (r.cfg.MaxAttempts + int(r.cfg.GraceNS/r.cfg.WorkedNS)) * (2 + int(max(0, int64(now)-m.AdmittedNS)/r.cfg.GraceNS))
		t.stage = schemas.StageDecode // what is missing in the tier is found out there
	}
	r.next++
	r.turns[m.Job] = t
	t.in, t.class = r.poolOf(m.Pool), needOf(schemas.ClassOf(m.Prompt.N-m.Prompt.TailFrom))
	t.keys = [orders]int64{byDeadline: m.DeadlineNS}
	if m.DeadlineNS > 0 {
		r.late.push(t)
	}
	r.look(now, t)
	out, held := r.enter(now, t, out)
	if held {
		return out
	}
	if why := r.hopeless(now, t); why != "" && !t.old {
		t.in.totals.refused++
		return r.fail(now, t, &schemas.Failure{Code: schemas.CodeDeadline, Message: why}, out)
	}
	r.wait(now, t)
	return out
}

func ack(seq uint64) schemas.Msg {
	return schemas.Msg{Kind: schemas.KindAck, Subject: string(schemas.RootReady), Seq: seq}
}

// result ends a turn, whoever wrote it.
func (r *Router) result(m *schemas.Result, out []schemas.Msg) []schemas.Msg {
	t := r.turns[schemas.JobID(m.Tenant, m.Session, m.Turn)]
	if t == nil {
		return out
	}
	if m.DecodeOn != "" {
		r.answered(t, m)
		r.served(r.now, t, m)
		t.length = t.ready.Prompt.N + max(0, m.Usage.Completion)
	}
	if x := r.execs[m.DecodeOn]; x != nil && m.Status == schemas.StatusOK {
		if m.PrefillOn == m.DecodeOn && t.exec == x {
			r.checked(t, x, m.Usage.Cached)
		}
		r.dir.learn(x.at, t.ends)
	}
	return r.finish(t, out)
}

func (r *Router) finish(t *turn, out []schemas.Msg) []schemas.Msg {
	r.release(t)
	r.unwait(t)
	delete(r.turns, t.ready.Job)
	if t.pos[byDeadline] > 0 {
		r.late.remove(t)
	}
	if t.state == stateFailing {
		r.failing = slices.DeleteFunc(r.failing, func(o *turn) bool { return o == t })
	}
	if t.begun {
		t.in.book.End(r.now, keyOf(t), t.ready.Branch, t.length)
	}
	r.unref(t.in)
	r.counts.Finished++
	return append(out, ack(t.seq))
}

// published ends a failing turn: its failure is stored, or a result was there first.
func (r *Router) published(in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	s, err := schemas.ParseSubject(in.Subject)
	if err != nil || s.Root != schemas.RootResult {
		return out
	}
	t := r.turns[schemas.JobID(s.Get("tenant"), s.Get("session"), s.Get("turn"))]
	if t == nil || t.state != stateFailing || in.Err != "" && in.Err != schemas.ErrTextConflict {
		return out // a refused failure is published again by reap
	}
	return r.finish(t, out)
}

// done moves a turn on when a stage ended.
func (r *Router) done(now schemas.Time, d *schemas.Done, out []schemas.Msg) []schemas.Msg {
	t := r.turns[d.Job]
	if t == nil || d.Attempt != t.attempt || t.state == stateFailing {
		return out
	}
	if t.state == stateWaiting && (d.Outcome == schemas.OutcomeReturned || d.Outcome == schemas.OutcomeFailed) {
		return out // told twice, or by an executor that had lost the turn already
	}
	if len(d.Spans) > 0 {
		t.spans = d.Spans
	}
	t.first = max(t.first, d.FirstNS)
	switch d.Outcome {
	case schemas.OutcomePrefilled:
		return r.prefilled(now, t, d, out)
	case schemas.OutcomeDecoded:
		return r.finish(t, out) // the executor found a result
	case schemas.OutcomeReturned:
		r.counts.Returned++
		if d.Stage == schemas.StageDecode && d.Reason == reasonMissing {
			r.checked(t, r.execs[d.Executor], d.Cached)
			// Once more through prefill; if the tier cannot keep what that
			// computes, the decode executor does it all.
			r.release(t)
			t.bound = t.bound || t.evicted || t.prefillOn != ""
			t.stage, t.evicted = schemas.StagePrefill, true
		} else if x := r.execs[d.Executor]; x != nil {
			// Its role or its queue differs from what its last heartbeat said. Placing
			// the turn there again at once would use up its attempts in milliseconds.
			x.closed = true
			r.update(x)
		}
		switch {
		case d.BusyNS > 0 && int64(now-t.placedAt) >= r.cfg.WorkedNS:
			t.tries-- // what was done is sealed: roles may change often under a long answer
		case d.BusyNS == 0 && t.first == 0 && t.prefillOn == "" && !t.old:
			t.stage = schemas.StagePrefill // nothing is done: it is as if it had just come
		}
		return r.again(now, t, out)
	case schemas.OutcomeFailed:
		return r.failed(now, t, d, out)
	}
	return out
}

// reasonMissing is what a decode executor says when prompt blocks are not in the tier.
const reasonMissing = "prompt blocks are missing"

func (r *Router) prefilled(now schemas.Time, t *turn, d *schemas.Done, out []schemas.Msg) []schemas.Msg {
	if t.stage != schemas.StagePrefill {
		return out
	}
	r.unwait(t) // to be prefilled again, where its executor was taken for dead
	t.prefillOn, t.cached, t.busy, t.miss = d.Executor, d.Cached, d.BusyNS, d.Miss
	r.found(t, d.Cached)
	r.charge(now, t, float64(d.BusyNS)/1e9)
	t.prefillBoot = ""
	if x := r.execs[d.Executor]; x != nil {
		t.prefillBoot = x.boot
		r.checked(t, x, d.Cached)
		r.dir.learn(x.at, t.ends)
		t.looked = 0
	}
	to, boot := t.decodeOn, t.boot
	r.release(t)
	t.stage = schemas.StageDecode
	if to != nil && d.PassedTo == to.id && to.alive && to.boot == boot {
		t.state, t.exec, t.placedAt, t.missing = statePlaced, to, now, 0
		to.decodes[t.ready.Job] = t
		to.occupy(t)
		r.update(to)
		return out
	}
	if d.PassedTo != "" { // it went to an executor that is gone
		return r.again(now, t, out)
	}
	t.handed = true
	if x := r.execs[d.Executor]; x != nil && x.alive {
		t.export = x
		x.exports += t.ready.Prompt.N
		r.update(x)
	}
	r.wait(now, t)
	return out
}

func (r *Router) failed(now schemas.Time, t *turn, d *schemas.Done, out []schemas.Msg) []schemas.Msg {
	f := &schemas.Failure{Code: d.Code, Message: d.Reason}
	switch d.Code {
	case schemas.CodeInvalid, schemas.CodeTooLong, schemas.CodeNeedFull, schemas.CodeCancelled, schemas.CodeModel:
		return r.fail(now, t, f, out)
	}
	if t.errors++; t.errors >= r.cfg.MaxErrors {
		return r.fail(now, t, f, append(out, r.dead(now, t, f)))
	}
	return r.again(now, t, out)
}

// again puts a turn back among the waiting with a new attempt.
func (r *Router) again(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	r.release(t)
	r.counts.Replaced++
	t.handed, t.indirect, t.local, t.since = false, false, t.bound, now
	if t.tries++; t.tries >= r.cfg.MaxAttempts {
		f := &schemas.Failure{Code: schemas.CodeInternal, Message: "given up after too many attempts; see the dead letters"}
		return r.fail(now, t, f, append(out, r.dead(now, t, f)))
	}
	r.wait(now, t)
	return out
}
