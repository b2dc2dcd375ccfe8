package lineage

import (
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// A caller knows a result before lineage does: it reads RESULT, or the end of the
// frames, and its next turn may overtake the result on the way here. A turn that can
// only be placed with an answer that is still in work is held until the answer
// comes, for a while.

// holdNS is how long a turn is held. Results take milliseconds; a turn that names
// what never was, or quotes an answer from elsewhere, should not wait for long.
const holdNS = 5_000_000_000

// maxHeld bounds the turns of a session that are held.
const maxHeld = 64

// held is a turn that waits for a result.
type held struct {
	t     *turn
	until schemas.Time
}

// overtook reports whether the turn continues an answer that is not here yet.
func (t *turn) overtook() bool {
	s, known := t.sess, t.msg.Weir.Known
	if t.waited || len(s.work) == 0 || s.holds >= maxHeld {
		return false
	}
	if known != "" {
		return s.branches[t.msg.Weir.Branch] == nil && s.known[known] == nil
	}
	if !t.implicit() {
		return false
	}
	for _, b := range s.work {
		at := b.busy.entries
		if k := len(at); k > 0 && k < len(t.items) && t.items[k].role == "assistant" && same(at, t.items) == k {
			return true
		}
	}
	return false
}

// hold keeps a turn until a turn of its session has ended.
func (l *Lineage) hold(now schemas.Time, t *turn) {
	l.holds = append(l.holds, held{t, now + holdNS})
	t.sess.holds++
}

// release places the turns of a session that were held, after a result of it.
func (l *Lineage) release(now schemas.Time, s *session, out []schemas.Msg) []schemas.Msg {
	if s.holds == 0 || s.releasing {
		return out
	}
	s.releasing = true
	for i := 0; i < len(l.holds); {
		t := l.holds[i].t
		if t.sess != s || t.state != turnEnded && t.overtook() {
			i++
			continue
		}
		l.holds = slices.Delete(l.holds, i, i+1)
		out = l.let(now, t, out)
	}
	s.releasing = false
	return out
}

// let places a turn that was held.
func (l *Lineage) let(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	t.sess.holds--
	if t.state == turnEnded {
		return out
	}
	t.waited = true
	return l.place(now, t, out)
}

// overdue places turns that were held long enough.
func (l *Lineage) overdue(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	for len(l.holds) > 0 && l.holds[0].until <= now {
		t := l.holds[0].t
		l.holds = slices.Delete(l.holds, 0, 1)
		out = l.let(now, t, out)
	}
	return out
}

func (l *Lineage) nextHold() schemas.Time {
	if len(l.holds) == 0 {
		return schemas.Never
	}
	return l.holds[0].until
}
