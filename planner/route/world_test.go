package route

import (
	"fmt"
	"math/rand/v2"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// chooser draws numbers: rapid's in property tests, a seeded source in
// simulations.
type chooser interface {
	n(label string, below int) int
}

type fromRapid struct{ t *rapid.T }

func (c fromRapid) n(label string, below int) int { return rapid.IntRange(0, below-1).Draw(c.t, label) }

type fromSeed struct{ *rand.Rand }

func (c fromSeed) n(_ string, below int) int { return c.IntN(below) }

// world is a model of everything around a router: executors that hold jobs, a
// RESULT stream where the first one wins, and a network that delays, repeats and
// loses what may be lost.
type world struct {
	t      interface{ Fatalf(string, ...any) }
	pick   chooser
	r      *Router
	now    schemas.Time
	seq    uint64
	turns  []*modelTurn
	byJob  map[string]*modelTurn
	execs  []*modelExec
	inbox  []schemas.Msg // on the way to the router
	faults bool
	poison string // a turn that ends every executor that starts it
	deaths int
	dead   int              // dead letters
	old    int              // turns that a router found when it started
	before schemas.PoolLoad // the load that was told last
}

type modelTurn struct {
	ready   *schemas.Ready
	seqs    map[uint64]bool // READY messages that are not acknowledged
	result  *schemas.Result
	attempt int
}

type modelExec struct {
	id    string
	boot  int
	role  schemas.Role // in force
	said  schemas.Role // in the last heartbeat that the router can know
	up    bool
	jobs  []*schemas.Job // placed, in order of arrival
	slots int
}

func newWorld(t interface{ Fatalf(string, ...any) }, pick chooser, execs int, faults bool) *world {
	w := &world{t: t, pick: pick, now: 1000 * second, byJob: map[string]*modelTurn{}, faults: faults}
	w.restart()
	roles := []schemas.Role{schemas.RoleDecode, schemas.RolePrefill, schemas.RoleMixed, schemas.RoleDecode}
	for i := range execs {
		w.execs = append(w.execs, &modelExec{id: fmt.Sprintf("e%d", i), boot: 1, role: roles[i%len(roles)], up: true, slots: 3})
	}
	return w
}

// restart replaces the router: READY comes again, everything else is lost.
func (w *world) restart() {
	w.now += second / 1000
	w.inbox = nil
	w.r = New(Config{Cell: "c0"})
	w.old, w.before = len(w.turns), schemas.PoolLoad{}
	for seq := range w.seq + 1 {
		for _, m := range w.turns {
			if m.seqs[seq] {
				w.step(&schemas.Msg{Kind: schemas.KindReady, Seq: seq, Ready: m.ready})
			}
		}
	}
}

func (w *world) publishTurn(id string, n int) {
	r := turnReady(id, n, 0)
	nameBlocks(r, "x")
	r.AdmittedNS = int64(w.now)
	m := w.byJob[r.Job]
	if m == nil {
		m = &modelTurn{ready: r, seqs: map[uint64]bool{}}
		w.byJob[r.Job] = m
		w.turns = append(w.turns, m)
	} else if m.result != nil {
		return
	}
	w.seq++
	m.seqs[w.seq] = true
	w.step(&schemas.Msg{Kind: schemas.KindReady, Seq: w.seq, Ready: m.ready})
}

func (w *world) exec(id string) *modelExec {
	for _, x := range w.execs {
		if x.id == id {
			return x
		}
	}
	w.t.Fatalf("a message for executor %q, which does not exist", id)
	return nil
}

// step hands the router a message and carries out what it wants.
func (w *world) step(m *schemas.Msg) {
	for _, o := range w.r.Step(w.now, m, nil) {
		switch o.Kind {
		case schemas.KindJob:
			w.placed(o.Job, w.exec(o.Subject[len(o.Job.Stage)+len(".c0."):len(o.Subject)-len(o.Job.Ready.Job)-1]))
		case schemas.KindAck:
			w.acked(o.Seq)
		case schemas.KindResult:
			w.store(o.Result, true)
		case schemas.KindCancel:
			if !w.faults || w.pick.n("cancel lost", 4) > 0 {
				w.cancelled(o.Cancel, o.Subject[len("cancel.c0."):])
			}
		case schemas.KindDead:
			w.dead++
		case schemas.KindOp:
			w.asked(o.Op)
		case schemas.KindLoad:
			w.loaded(o.Load)
		default:
			w.t.Fatalf("the router sent kind %d", o.Kind)
		}
	}
	w.bounds()
}

// placed checks a placement. Invariant 6, as far as the router can know: the role
// of the last heartbeat allows the stage. Attempts only grow.
func (w *world) placed(j *schemas.Job, x *modelExec) {
	m := w.byJob[j.Ready.Job]
	if !x.said.Takes(j.Stage) {
		w.t.Fatalf("%s of %s was placed on %s, whose role is %s", j.Stage, j.Ready.Turn, x.id, x.said)
	}
	if j.Attempt < m.attempt {
		w.t.Fatalf("attempt %d of %s after %d", j.Attempt, j.Ready.Turn, m.attempt)
	}
	m.attempt = j.Attempt
	rx := w.r.execs[x.id]
	if (j.Alone || rx.alone != nil) && len(rx.prefills)+len(rx.decodes) > 1 {
		w.t.Fatalf("%s was placed on %s beside others, alone %v", j.Ready.Turn, x.id, j.Alone)
	}
	// Jobs that were taken over from an earlier router may exceed the slots.
	if j.Stage == schemas.StageDecode && len(rx.decodes) > rx.slots {
		w.t.Fatalf("%s has %d slots, %d decodes were placed", x.id, rx.slots, len(rx.decodes))
	}
	if !x.up || w.faults && w.pick.n("job lost", 8) == 0 {
		return
	}
	w.arrive(j, x)
}

func (w *world) arrive(j *schemas.Job, x *modelExec) {
	for i, have := range x.jobs {
		if have.Ready.Job == j.Ready.Job {
			if have.Attempt < j.Attempt || have.Attempt == j.Attempt && have.Stage == schemas.StagePrefill {
				x.jobs[i] = j
			}
			return
		}
	}
	if !x.role.Takes(j.Stage) {
		w.doneMsg(j, x, schemas.OutcomeReturned, "role is "+string(x.role), "")
		return
	}
	x.jobs = append(x.jobs, j)
}

func (w *world) acked(seq uint64) {
	for _, m := range w.turns {
		if m.seqs[seq] {
			delete(m.seqs, seq)
			if len(m.seqs) == 0 && m.result == nil {
				w.t.Fatalf("%s was acknowledged without a result", m.ready.Turn)
			}
		}
	}
}

// store is the RESULT stream: the first one wins.
func (w *world) store(r *schemas.Result, byRouter bool) {
	m := w.byJob[r.Job]
	err := ""
	switch {
	case w.faults && w.pick.n("full", 6) == 0:
		err = schemas.ErrTextFull
	case m.result != nil:
		err = schemas.ErrTextConflict
	default:
		m.result = r
		w.send(schemas.Msg{Kind: schemas.KindResult, Result: r})
	}
	if byRouter {
		w.send(schemas.Msg{Kind: schemas.KindPublished, Subject: schemas.ResultSubject(r.Tenant, r.Session, r.Turn), Err: err})
	}
}

// asked answers for a node, which holds blocks that all prompts begin with; with
// faults, it may not answer.
func (w *world) asked(op *schemas.Op) {
	d := &schemas.OpDone{ID: op.ID}
	if w.faults && w.pick.n("no list", 4) == 0 {
		d.Err = "nobody answers"
	} else {
		d.Sync = &schemas.SyncReply{Header: schemas.H(), Node: op.Sync.Node, Epoch: 1, Peer: "p", Extents: chains(fmt.Sprintf("x/%d", w.pick.n("blocks", 20)))}
	}
	w.send(schemas.Msg{Kind: schemas.KindOpDone, OpDone: d})
}

// send puts a message on its way to the router.
func (w *world) send(m schemas.Msg) {
	w.inbox = append(w.inbox, m)
	if w.faults && w.pick.n("twice", 6) == 0 {
		w.inbox = append(w.inbox, m)
	}
}

func (w *world) cancelled(c *schemas.Cancel, exec string) {
	x := w.exec(exec)
	for i, j := range x.jobs {
		if j.Ready.Job == c.Job && j.Attempt <= c.Attempt {
			x.jobs = append(x.jobs[:i:i], x.jobs[i+1:]...)
			return
		}
	}
}

func (w *world) doneMsg(j *schemas.Job, x *modelExec, o schemas.Outcome, reason, to string) {
	if w.faults && w.pick.n("done lost", 8) == 0 {
		return
	}
	w.send(schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{
		Header: schemas.H(), Job: j.Ready.Job, Attempt: j.Attempt, Stage: j.Stage, Executor: x.id, Outcome: o, Reason: reason, PassedTo: to,
	}})
}

// heartbeat of an executor; it reaches the router at once or, with faults, later.
func (w *world) heartbeat(x *modelExec) {
	if !x.up {
		return
	}
	h := &schemas.Heartbeat{
		Header: schemas.H(), Executor: x.id, Pool: "m", Boot: fmt.Sprint(x.boot), Role: x.role, Slots: x.slots, Context: 1 << 20,
		Node: []string{"a", "b"}[int(x.id[1]-'0')%2], PrefillTPS: 1000,
	}
	for _, j := range x.jobs {
		h.Held = append(h.Held, schemas.Held{Job: j.Ready.Job, Attempt: j.Attempt, Stage: j.Stage})
	}
	if w.faults && w.pick.n("heartbeat late", 5) == 0 {
		w.inbox = append(w.inbox, schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: h})
		return
	}
	w.heard(h)
}

func (w *world) heard(h *schemas.Heartbeat) {
	x := w.exec(h.Executor)
	if rx := w.r.execs[x.id]; rx == nil || rx.gone != h.Boot {
		x.said = h.Role
	}
	w.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: h})
}

// die ends an executor's process; a new life begins at once or later.
func (w *world) die(x *modelExec, outside bool) {
	w.deaths++
	x.jobs, x.boot, x.up = nil, x.boot+1, false
	w.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
		Header: schemas.H(), Executor: x.id, Dead: true, Outside: outside, Cause: "signal: aborted",
	}})
}

// work advances one job of an executor.
func (w *world) work(x *modelExec) {
	if !x.up || len(x.jobs) == 0 {
		return
	}
	i := w.pick.n("which job", len(x.jobs))
	if x.jobs[0].Alone {
		i = 0 // nothing passes it
	}
	j := x.jobs[i]
	if j.Ready.Turn == w.poison {
		w.die(x, false)
		return
	}
	outcome := 0
	if w.faults {
		outcome = w.pick.n("outcome", 10)
	}
	x.jobs = append(x.jobs[:i:i], x.jobs[i+1:]...)
	switch {
	case outcome == 9:
		w.send(schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{
			Header: schemas.H(), Job: j.Ready.Job, Attempt: j.Attempt, Stage: j.Stage, Executor: x.id, Outcome: schemas.OutcomeFailed, Code: schemas.CodeEngine, Reason: "boom",
		}})
	case outcome == 8 && j.Stage == schemas.StageDecode && !j.Local:
		w.doneMsg(j, x, schemas.OutcomeReturned, reasonMissing, "")
	case outcome == 7:
		w.doneMsg(j, x, schemas.OutcomeReturned, "role changes", "")
	case j.Stage == schemas.StagePrefill:
		if j.DecodeOn != "" {
			next := *j
			next.Stage, next.DecodeOn = schemas.StageDecode, ""
			if to := w.exec(j.DecodeOn); to.up && !(w.faults && w.pick.n("hand-over lost", 8) == 0) {
				w.arrive(&next, to)
			}
		}
		w.doneMsg(j, x, schemas.OutcomePrefilled, "", j.DecodeOn)
	default:
		r := j.Ready
		if m := w.byJob[r.Job]; m.result != nil {
			w.doneMsg(j, x, schemas.OutcomeDecoded, "", "")
			return
		}
		w.store(&schemas.Result{Header: schemas.H(), Tenant: "t", Session: "s", Turn: r.Turn, Job: r.Job, Attempt: j.Attempt, Status: schemas.StatusOK}, false)
	}
}

func (w *world) deliver(i int) {
	m := w.inbox[i]
	w.inbox = append(w.inbox[:i:i], w.inbox[i+1:]...)
	if m.Kind == schemas.KindHeartbeat {
		w.heard(m.Heartbeat)
		return
	}
	w.step(&m)
}

// pass lets time go by in the ticks that the router asks for.
func (w *world) pass(d schemas.Time) {
	for end := w.now + d; w.now < end; {
		w.now = min(end, max(w.now+1, w.r.Next()))
		w.step(&schemas.Msg{Kind: schemas.KindTick})
	}
}

// finish heals everything and runs until nothing is left. Invariant 1: every turn
// has exactly one result, and READY is empty.
func (w *world) finish() {
	w.faults = false
	for range 4000 {
		for _, x := range w.execs {
			x.up = true
			w.heartbeat(x)
		}
		for len(w.inbox) > 0 {
			w.deliver(0)
		}
		for _, x := range w.execs {
			w.work(x)
		}
		w.pass(second / 4)
		if wait, placed := w.r.Load(); wait+placed == 0 && len(w.inbox) == 0 {
			break
		}
	}
	for _, m := range w.turns {
		if m.result == nil || len(m.seqs) > 0 {
			w.t.Fatalf("turn %s: result %v, %d READY messages left", m.ready.Turn, m.result, len(m.seqs))
		}
	}
	for _, x := range w.r.execs {
		if x.alive && (!x.empty() || x.tokens != 0 || x.alone != nil || x.reserved != nil) {
			w.t.Fatalf("%s: credits are left: %+v", x.id, x)
		}
	}
}
