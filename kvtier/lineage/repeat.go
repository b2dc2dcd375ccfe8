package lineage

import (
	"container/list"
	"maps"
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// Tier nodes are told again where each live branch stands: messages to them may be
// lost, and a node that was started anew knows no branch.

// Bounds of that: so many branches in so long a time. With more than 7,680 branches
// each one's turn comes later than after a minute.
const (
	maxRepeats    = 128
	repeatPauseNS = schemas.Time(1e9)
)

// heardOf notes that the tier nodes are told where a branch stands.
func (l *Lineage) heardOf(now schemas.Time, s *session, b *branch) {
	l.unheard(b)
	switch b.state {
	case schemas.BranchRunning, schemas.BranchToolWaiting, schemas.BranchUserWaiting:
		if l.cfg.RepeatNS > 0 {
			b.toldAt = now
			b.repeat = l.repeats.PushBack(decaying{s, b})
		}
	}
}

// unheard takes a branch out of those that the tier nodes are told of.
func (l *Lineage) unheard(b *branch) {
	if b.repeat != nil {
		l.repeats.Remove(b.repeat)
		b.repeat = nil
	}
}

// nextRepeat is when a branch is to be told of again.
func (l *Lineage) nextRepeat() schemas.Time {
	e := l.repeats.Front()
	if e == nil || len(l.nodes) == 0 {
		return schemas.Never
	}
	return max(l.repeatAt, e.Value.(decaying).b.toldAt+schemas.Time(l.cfg.RepeatNS))
}

// repeated tells again of the branches whose turn it is.
func (l *Lineage) repeated(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	if now < l.nextRepeat() {
		return out
	}
	for range maxRepeats {
		e := l.repeats.Front()
		if e == nil || e.Value.(decaying).b.toldAt+schemas.Time(l.cfg.RepeatNS) > now {
			break
		}
		d := e.Value.(decaying)
		log := d.b.log
		if d.b.busy != nil && d.b.state == schemas.BranchRunning && d.b.busy.log != nil {
			log = d.b.busy.log
		}
		l.heardOf(now, d.s, d.b)
		out = l.announce(d.s, d.b, log, out)
	}
	l.repeatAt = now + repeatPauseNS
	return out
}

// restoreRepeats lists the live branches: they are told of at once.
func (l *Lineage) restoreRepeats() {
	l.repeats = list.New()
	for _, k := range slices.Sorted(maps.Keys(l.sessions)) {
		s := l.sessions[k]
		for _, n := range sortedBranches(s) {
			l.heardOf(-schemas.Time(max(0, l.cfg.RepeatNS)), s, s.branches[n])
		}
	}
}
