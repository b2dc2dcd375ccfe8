package sim

import (
	"cmp"
	"slices"

	"github.com/weir-dev/weir/kvtier/retain"
	"github.com/weir-dev/weir/schemas"
)

// elem is a place in a list; a context is in at most one of a node's two lists.
type elem struct {
	in         *list
	prev, next *held
}

// list is an intrusive list of contexts.
type list struct{ first, last *held }

func (l *list) remove(h *held) {
	e := &h.el
	if e.in != l {
		return
	}
	if e.prev != nil {
		e.prev.el.next = e.next
	} else {
		l.first = e.next
	}
	if e.next != nil {
		e.next.el.prev = e.prev
	} else {
		l.last = e.prev
	}
	*e = elem{}
}

// toBack makes h the last of the list that it is in, or of l when it is in none.
func (l *list) toBack(h *held) {
	if h.el.in != nil {
		l = h.el.in
		l.remove(h)
	}
	h.el = elem{in: l, prev: l.last}
	if l.last != nil {
		l.last.el.next = h
	} else {
		l.first = h
	}
	l.last = h
}

// ranking is the order of contexts that are waited for, as kvtier/retain ranks them:
// made anew once a second while there is something to evict, as a live node does.
type ranking struct {
	at    schemas.Time
	made  bool
	order []*ranked
}

type ranked struct {
	h     *held
	class retain.Class
	score float64
}

func (r *ranking) stale() {}

const rankEvery = schemas.Time(1e9)

// victim is the context that loses blocks next. What a class shares goes only when no
// context builds on it.
func (n *node) victim(now schemas.Time, keep []*held) *held {
	if n.m.order != OrderWeir {
		return first(&n.lru, keep)
	}
	if h := first(&n.dead, keep); h != nil {
		return h
	}
	r := &n.rank
	for range 2 {
		if !r.made || now-r.at >= rankEvery {
			n.makeRanking(now)
		}
		for len(r.order) > 0 {
			x := r.order[0]
			h := x.h
			if n.held[h.key] != h || h.isDead || h.refs > 0 || slices.Contains(keep, h) {
				r.order = r.order[1:]
				continue
			}
			return h
		}
		r.made = false
	}
	return first(&n.lru, keep)
}

func first(l *list, keep []*held) *held {
	for h := l.first; h != nil; h = h.el.next {
		if h.refs == 0 && !slices.Contains(keep, h) {
			return h
		}
	}
	return nil
}

func (n *node) makeRanking(now schemas.Time) {
	r := &n.rank
	r.at, r.made, r.order = now, true, r.order[:0]
	for h := n.lru.first; h != nil; h = h.el.next {
		x := &ranked{h: h, class: retain.ClassIdle}
		if b := h.branch; b != nil {
			x.class, x.score = n.m.est.Score(int64(now), &b.wait)
		}
		r.order = append(r.order, x)
	}
	slices.SortStableFunc(r.order, func(a, b *ranked) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.score, b.score), cmp.Compare(a.h.used, b.h.used))
	})
}

// runs is what lineage says when a turn begins. A context that was compacted is dead.
func (m *memory) runs(now schemas.Time, s *session) {
	if s.branch == nil {
		s.branch = &branch{wait: retain.Wait{Tenant: tenant, Session: s.id, Branch: schemas.DefaultBranch}}
	}
	b := s.branch
	if m.order != OrderWeir {
		return
	}
	if b.epoch != s.epoch {
		m.dead(ctxKey{s.uid, b.epoch})
		b.epoch = s.epoch
	}
	w := &b.wait
	if w.Turns > 0 {
		m.est.Ended(int64(now), w)
	}
	w.Turns++
	w.Running, w.Began, w.Tool = true, int64(now), ""
	w.Blocks, w.Own = s.prompt/blockTokens, max(0, s.prompt/blockTokens-s.chain.shared)
	m.est.Began(int64(now), w)
}

// queueTurns and maxQueue are those of kvtier/retain's Keeper.
const (
	queueTurns = 16
	maxQueue   = int64(600e9)
)

// waits is what lineage says when a turn has an answer and its agent goes on.
func (m *memory) waits(now schemas.Time, s *session, res *schemas.Result) {
	if m.order != OrderWeir {
		return
	}
	var queued int64
	for _, sp := range res.Timing.Spans {
		if sp.Stage == schemas.SpanQueue || sp.Stage == schemas.SpanPrefillWait {
			queued += sp.To - sp.From
		}
	}
	m.queue += (min(queued, maxQueue) - m.queue) / queueTurns
	m.est.Queue(m.queue)
	w := &s.branch.wait
	w.Running, w.Began, w.Tool = false, int64(now), s.w.Name
	m.est.Began(int64(now), w)
}

// ends is what lineage says when a session is over.
func (m *memory) ends(now schemas.Time, s *session) {
	if m.order != OrderWeir {
		return
	}
	if s.branch != nil {
		s.branch.ended = true
		m.est.Gone(int64(now), &s.branch.wait)
	}
	m.dead(ctxKey{s.uid, s.epoch})
}

// dead puts a context among those that go first, on every node.
func (m *memory) dead(k ctxKey) {
	for _, n := range m.nodes {
		if h := n.held[k]; h != nil && !h.isDead {
			h.isDead = true
			n.lru.remove(h)
			n.dead.toBack(h)
		}
	}
}
