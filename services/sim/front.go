package sim

import (
	"strconv"

	"github.com/weir-dev/weir/schemas"
)

// front is a fake: it stands for agents, gateway and lineage. It publishes the turns of
// its sessions as READY, reads their results, lets each agent take its tool's time, and
// tells the memory what lineage would tell it about branches.
type front struct {
	w     *world
	seed  uint64
	spawn spawner
	wakes wakes
	order uint64

	flights map[string]*flight // turns without a result, by job
	// sessions by id, those that ended too: engines may keep their contexts.
	sessions map[string]*session
	tickAt   schemas.Time // when slots are looked at again; Never without a drift
	active   int
	ended    int // sessions
}

// flight is a turn on its way.
type flight struct {
	s     *session
	r     *schemas.Ready
	asked schemas.Time // when the agent began to ask, refusals before included
	got   int          // tokens that frames have brought
	saved int          // tokens in checkpoints
	stage stageOf
	since schemas.Time // in that stage
}

// wake is a session that goes on at a time.
type wake struct {
	at schemas.Time
	n  uint64
	s  *session
}

type wakes []wake

func (h wakes) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].n < h[j].n
}

func (h *wakes) push(w wake) {
	*h = append(*h, w)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *wakes) pop() wake {
	q := *h
	top, last := q[0], len(q)-1
	q[0] = q[last]
	q[last] = wake{}
	q = q[:last]
	*h = q
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(q) {
			return top
		}
		if c+1 < len(q) && q.less(c+1, c) {
			c++
		}
		if !q.less(c, i) {
			return top
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
}

var _ schemas.Actor = (*front)(nil)

func newFront(w *world) *front {
	f := &front{w: w, seed: w.o.Seed, spawn: newSpawner(w), flights: map[string]*flight{}, sessions: map[string]*session{}, tickAt: w.start + startNS}
	return f
}

// startNS is when the first turns begin: every executor has its first role by then.
const startNS = schemas.Time(2e9)

// retryNS is how long an agent waits after a failure that names no time.
const retryNS = int64(1e9)

// Step handles one message.
func (f *front) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	if in.Kind == schemas.KindResult {
		out = f.result(now, in.Result, out)
	}
	if now >= f.tickAt {
		f.tickAt = f.spawn.next(now)
	}
	if now >= f.w.start+startNS {
		f.fill(now)
	}
	for len(f.wakes) > 0 && f.wakes[0].at <= now {
		out = f.ask(now, f.wakes.pop().s, out)
	}
	return out
}

// Next is when a session goes on, or slots change.
func (f *front) Next() schemas.Time {
	if len(f.wakes) > 0 {
		return min(f.tickAt, f.wakes[0].at)
	}
	return f.tickAt
}

// Snapshot is not needed: the front never crashes.
func (f *front) Snapshot(dst []byte) ([]byte, error) { return dst, nil }

// Restore accepts any snapshot.
func (f *front) Restore([]byte) error { return nil }

func (f *front) wake(at schemas.Time, s *session) {
	f.order++
	f.wakes.push(wake{at, f.order, s})
}

// fill starts sessions where slots are free.
func (f *front) fill(now schemas.Time) {
	for {
		s := f.spawn.one(now)
		if s == nil {
			return
		}
		s.began = now
		f.sessions[s.id] = s
		f.active++
		s.draw()
		f.wake(now, s)
	}
}

// ask publishes a session's turn.
func (f *front) ask(now schemas.Time, s *session, out []schemas.Msg) []schemas.Msg {
	r := s.ready(now)
	x := &flight{s: s, r: r, asked: now, since: now}
	if s.tries > 0 {
		x.asked = s.asked
	}
	s.asked = x.asked
	f.flights[r.Job] = x
	f.w.mem.runs(now, s)
	return append(out, schemas.Msg{
		Kind: schemas.KindReady, Subject: schemas.ReadySubject(cell, r.Tenant, r.Session, r.Turn), ID: r.MsgID("ready"), Ready: r,
	})
}

// result takes the end of a turn.
func (f *front) result(now schemas.Time, res *schemas.Result, out []schemas.Msg) []schemas.Msg {
	x := f.flights[res.Job]
	if x == nil {
		f.w.check.broken(1, "a result for "+res.Session+" "+res.Turn+", which has one or was never asked for")
		return out
	}
	delete(f.flights, res.Job)
	delete(f.w.mem.handed, res.Job)
	s := x.s
	if res.Failure != nil {
		return f.failed(now, x, res, out)
	}
	f.w.check.answer(x, res)
	f.w.rec.turn(now, x, res)
	s.served += int64(s.fill + s.output)
	s.context = s.prompt + s.output
	s.turn++
	if s.turn < s.turns && !f.spawn.over {
		f.w.mem.waits(now, s, res)
		wait := s.wait()
		s.draw()
		f.wake(now+wait, s)
		return out
	}
	return f.end(now, s, out)
}

// end takes leave of a session. The router hears of it as it does from lineage.
func (f *front) end(now schemas.Time, s *session, out []schemas.Msg) []schemas.Msg {
	f.w.mem.ends(now, s)
	f.active--
	f.ended++
	f.spawn.gone(s)
	s.chain.stops = nil // made again when somebody asks
	f.w.rec.session(now, s)
	return append(out, schemas.Msg{
		Kind: schemas.KindBranch, Subject: schemas.BranchSubject(cell, f.w.mem.nodes[0].id), Core: true,
		Branch: &schemas.BranchChange{
			Header: schemas.H(), Tenant: tenant, Session: s.id, Branch: schemas.DefaultBranch, State: schemas.BranchEnded, Why: "session_end", AtNS: int64(now),
		},
	})
}

// maxTries bounds how often an agent asks for one turn.
const maxTries = 1000

// failed: a refused turn is asked for again when the refusal says, as a client that
// obeys Retry-After does; it counts from when it was asked for first.
func (f *front) failed(now schemas.Time, x *flight, res *schemas.Result, out []schemas.Msg) []schemas.Msg {
	s := x.s
	f.w.rec.refused(x, res)
	if s.tries++; s.tries >= maxTries {
		f.w.check.broken(1, "session "+s.id+" turn "+strconv.Itoa(s.turn)+" failed "+strconv.Itoa(maxTries)+" times: "+res.Failure.Message)
		return f.end(now, s, out)
	}
	wait := res.Failure.RetryNS
	if wait <= 0 {
		wait = retryNS
	}
	f.wake(now+schemas.Time(wait), s)
	return out
}

// living are the sessions that have not ended, by id.
func (f *front) living() map[string]*session {
	m := map[string]*session{}
	for _, x := range f.flights {
		m[x.s.id] = x.s
	}
	for _, w := range f.wakes {
		m[w.s.id] = w.s
	}
	return m
}
