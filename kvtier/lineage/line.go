package lineage

import (
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// item is a turn or an event that waits in a session's line.
type item struct {
	t  *turn
	ev *schemas.Msg
}

// enter puts what an agent said at the end of its session's line. The line keeps
// what must be done in the order in which it was said: a large body is fetched
// before its turn has a place, and what an earlier life of this process had seen is
// done again one by one, so that it ends as it did. Otherwise the line is empty.
func (l *Lineage) enter(now schemas.Time, s *session, it item, out []schemas.Msg) []schemas.Msg {
	s.line = append(s.line, it)
	return l.advance(now, s, out)
}

// advance does what stands at the head of the line, until something must be waited
// for.
func (l *Lineage) advance(now schemas.Time, s *session, out []schemas.Msg) []schemas.Msg {
	if s.advancing {
		return out
	}
	s.advancing = true
	for len(s.line) > 0 {
		done := true
		if it := s.line[0]; it.ev != nil {
			out = l.event(now, s, it.ev, out)
		} else if out, done = l.head(now, it.t, out); !done {
			break
		}
		s.line[0] = item{}
		if len(s.line) == 1 {
			s.line = s.line[:0]
		} else {
			s.line = s.line[1:]
		}
	}
	s.advancing = false
	return out
}

// head brings the turn at the head of the line on, and says whether the next one
// may follow.
func (l *Lineage) head(now schemas.Time, t *turn, out []schemas.Msg) ([]schemas.Msg, bool) {
	old := l.older(t)
	switch {
	case t.state == turnEnded:
		return out, true
	case t.branch == nil && (old || l.manyTurns(t.sess)) && !t.looked:
		if !t.asked {
			t.asked, t.state = true, turnLooking
			out = l.ask(t, &schemas.Op{Lookup: &schemas.LookupOp{Tenant: t.sess.tenant, Session: t.sess.id, Turn: t.id}}, out)
		}
		return out, false
	case t.branch == nil && t.implicit() && t.msg.BodyRef != nil:
		if t.state != turnRendering {
			t.state = turnRendering
			out = l.ask(t, &schemas.Op{Fetch: &schemas.FetchOp{Ref: *t.msg.BodyRef}}, out)
		}
		return out, false
	case t.branch == nil:
		t.state = turnWaiting
		out = l.place(now, t, out)
	}
	settled := t.state == turnReady || t.state == turnEnded || t.branch == nil || t.branch.busy != t
	return out, !old || settled
}

// implicit: the turn does not say where it belongs.
func (t *turn) implicit() bool {
	m := t.msg
	return m.Weir.Branch == "" && m.Weir.Parent == "" && (len(m.Messages) > 0 || m.Weir.Known != "" || m.BodyRef != nil)
}

// older: the turn was published before this process started, so an earlier one
// may have handled it.
func (l *Lineage) older(t *turn) bool { return t.at < l.started }

// manyTurns: ids of this session have been forgotten, so an unknown id may be an old one.
func (l *Lineage) manyTurns(s *session) bool { return s.again || len(s.order) >= l.cfg.MaxTurns }

func (l *Lineage) ask(t *turn, op *schemas.Op, out []schemas.Msg) []schemas.Msg {
	l.opID++
	op.ID, op.Trace = l.opID, t.trace
	l.asks[op.ID] = t
	return append(out, schemas.Msg{Kind: schemas.KindOp, Op: op})
}

// opDone continues a turn with the answer that it waited for.
func (l *Lineage) opDone(now schemas.Time, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	t := l.asks[d.ID]
	if t == nil {
		return out
	}
	delete(l.asks, d.ID)
	return l.advance(now, t.sess, l.told(now, t, d, out))
}

func (l *Lineage) told(now schemas.Time, t *turn, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	switch {
	case t.state == turnEnded:
		return out
	case d.Err != "" && d.Code == schemas.CodeBusy && t.state != turnReady:
		return l.later(now, t, out)
	case d.Err != "":
		code := d.Code
		if code == "" {
			code = schemas.CodeInternal
		}
		return l.refuse(now, t, code, d.Err, "", out)
	case d.Lookup != nil:
		t.looked, t.published, t.recorded = true, d.Lookup.Ready, d.Lookup.Branch
		if t.result == nil { // it may have come while it was looked for
			t.result = d.Lookup.Result
		}
		return out
	case d.Fetch != nil:
		return l.fetched(now, t, d.Fetch, out)
	case d.Render != nil:
		return l.rendered(now, t, &d.Render.Reply, out)
	}
	return out
}

// later asks again soon: what was acknowledged is not given up because many turns
// are being looked up at once, as after a restart. The deadline bounds it.
func (l *Lineage) later(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	if int64(now-t.at) > l.cfg.DeadlineNS {
		return l.refuse(now, t, schemas.CodeBusy, "too many turns were being read at once until the deadline", "", out)
	}
	t.askAgain = true
	l.retries = append(l.retries, t)
	if l.retryAt == schemas.Never {
		l.retryAt = now + retryNS
	}
	return out
}

// askedAgain repeats the question of a turn that was refused for lack of room.
func (l *Lineage) askedAgain(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	t.askAgain = false
	if t.branch != nil {
		return l.begin(now, t, out)
	}
	t.asked, t.state = false, turnWaiting
	return l.advance(now, t.sess, out)
}

// fetched puts a body from the payload bucket in the place of its reference. Ids
// stay those of the message on the bus.
func (l *Lineage) fetched(now schemas.Time, t *turn, d *schemas.FetchDone, out []schemas.Msg) []schemas.Msg {
	if f := d.Failure; f != nil {
		return l.refuse(now, t, f.Code, f.Message, f.Param, out)
	}
	if d.Turn.BodyRef != nil {
		return l.refuse(now, t, schemas.CodeInvalid, "a body in the payload bucket refers to another one", "body_ref", out)
	}
	meta := t.msg.Weir
	meta.InputTokens, meta.ForceOutput = d.Turn.Weir.InputTokens, d.Turn.Weir.ForceOutput
	t.msg = d.Turn
	t.msg.Weir = meta
	if t.branch == nil {
		t.state = turnWaiting
		return out
	}
	return l.render(now, t, out)
}

// begin starts the work on a turn whose branch is free.
func (l *Lineage) begin(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	if t.branch.busy == nil {
		t.sess.work = append(t.sess.work, t.branch)
	}
	t.branch.busy = t
	if t.cancelled && t.result == nil && !t.published {
		return l.refuse(now, t, schemas.CodeCancelled, "cancelled before it started", "", out)
	}
	return l.render(now, t, out)
}

// queue puts a turn on its branch, where one turn runs after the other.
func (l *Lineage) queue(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	b := t.branch
	if b.busy == nil {
		return l.begin(now, t, out)
	}
	if len(b.wait) >= l.cfg.MaxQueue && t.result == nil && !t.published {
		return l.refuse(now, t, schemas.CodeBusy, fmt.Sprintf("%d turns of branch %q are waiting already", len(b.wait), b.id), "", out)
	}
	b.wait = append(b.wait, t)
	return out
}
