package branch

import "github.com/weir-dev/weir/schemas"

// candidates is how many branches below the point where the request parts from the
// known contexts are compared with it, and visits how many places in the tree are
// looked at to find them.
const (
	candidates = 8
	visits     = 64
)

// Place decides which branch a request goes on. It changes nothing but a note for
// the branch's next Set. busy says whether
// a branch has a turn in progress, nil is never; fresh names a new branch.
//
// The rules, first match wins. "Idle" is not busy.
//
//  1. Nothing is known: First.
//  2. The longest known prefix of the request is a whole live context: Continue when
//     an answer comes next, even on a busy branch, since an answer can be with the
//     client before its end is known here. Else, on an idle branch, Continue, or
//     Retry when the request holds nothing more. Else Fork.
//  3. It is a whole superseded context, or nine tenths of one that no live context
//     shares as far: Fork of the branch that had it. The line goes on after all.
//  4. The request shares a conversation (more than system prompt and tools) with
//     branches that all are busy: Fork.
//  5. It shares a conversation with an idle branch: Retry when only the last answer
//     is missing, Pruned when all differences are smaller or absent media and tool
//     results, SubAgent when it is a sibling, Compaction when it is much shorter,
//     else Rewrite.
//  6. It shares system prompt and tools, mostly, with an idle branch: Rewrite when
//     what follows is the same, Compaction when that branch was hinted or, if the
//     request is not a sibling, when it is much shorter, Rewrite when it holds
//     answers or is larger than a new conversation.
//  7. Else SubAgent.
//
// A sibling is a request that parts within the first request of a branch which
// began as a sub-agent, holds no answers behind that, and is about as large.
func (f *Forest) Place(r Request, busy func(branch string) bool, fresh func() string) Placement {
	if busy == nil {
		busy = func(string) bool { return false }
	}
	items := r.Items
	if len(items) > f.opt.MaxContext {
		items = items[:f.opt.MaxContext]
	}
	q := query{f: f, items: items, size: sizeOf(items), lead: lead(items), busy: busy, foreign: r.Foreign}
	p := q.decide()
	if p.New {
		p.Branch = fresh()
	}
	f.remember(p.Branch, placed{made: p.New, sub: p.Kind == SubAgent, hinted: r.Hint == schemas.HintCompaction})
	return p
}

// query is one request against the forest.
type query struct {
	f     *Forest
	items []Item
	size  int
	lead  int // leading items that are system prompt or tools
	busy  func(string) bool
	// foreign: what it quotes is no answer of a branch in progress.
	foreign bool

	at      *node // where the match ends, inside at's edge when matched < at.depth
	matched int
}

func (q *query) decide() Placement {
	if len(q.f.branches) == 0 {
		return Placement{New: true, Kind: First}
	}
	q.at, q.matched = q.f.walk(q.items)
	if q.matched > 0 && q.matched == q.at.depth && q.at.lines != nil {
		return q.whole()
	}
	if q.matched > q.lead {
		return q.parts()
	}
	return q.apart()
}

// whole places a request that holds all of a known context.
func (q *query) whole() Placement {
	kind := Continue
	if q.matched == len(q.items) {
		kind = Retry
	}
	var live, past *line
	for l := q.at.lines; l != nil; l = l.next {
		switch {
		case !l.live:
			if past == nil {
				past = l
			}
		case !q.busy(l.branch.name):
			return q.on(l.branch, kind)
		case live == nil:
			live = l
		}
	}
	switch {
	case live == nil:
		return q.fork(past.branch)
	case kind == Continue && q.items[q.matched].Role == Assistant && !q.foreign:
		return q.on(live.branch, Continue)
	}
	return q.fork(live.branch)
}

// parts places a request that parts from a conversation before its end.
func (q *query) parts() Placement {
	var best *state
	lines := q.near()
	for _, l := range lines {
		if q.busy(l.branch.name) {
			continue
		}
		if l.live && q.pruned(l) {
			return q.on(l.branch, Pruned)
		}
		if best == nil {
			best = l.branch
		}
	}
	switch first := lines[0]; {
	case best == nil && q.sibling(first.branch):
		return q.start(first.branch)
	case best == nil || !first.live && q.most(first):
		return q.fork(first.branch)
	}
	end := best.line.end
	switch {
	case q.matched == len(q.items) && end.depth == q.matched+1 && end.edge[len(end.edge)-1].Role == Assistant:
		return q.on(best, Retry)
	case q.sibling(best):
		return q.start(best)
	case best.hinted || q.shorter(best) && q.summary():
		return q.on(best, Compaction)
	}
	return q.on(best, Rewrite)
}

// apart places a request that shares at most system prompt and tools.
func (q *query) apart() Placement {
	if s, idle := q.changed(); idle {
		return q.on(s, Rewrite)
	} else if s != nil {
		return q.fork(s)
	}
	lines := q.near()
	system := 2*sizeOf(q.items[:q.matched]) > sizeOf(q.items[:q.lead])
	for _, l := range lines {
		s := l.branch
		if q.busy(s.name) {
			continue
		}
		switch {
		case q.matched == 0 || !system && !q.answers():
		case s.hinted:
			return q.on(s, Compaction)
		case q.sibling(s):
		case q.shorter(s) && (q.answers() || q.older(s) || !q.brief()):
			return q.on(s, Compaction)
		case q.answers() || q.older(s):
			return q.on(s, Rewrite)
		}
	}
	return q.start(lines[0].branch)
}

// changed returns a branch, an idle one if there is one, whose conversation the
// request holds behind another system prompt. Of more than candidates branches that
// start with the same message the ones set last are looked at.
func (q *query) changed() (s *state, idle bool) {
	if q.lead == len(q.items) {
		return nil, false
	}
	next := q.f.heads[q.items[q.lead].Digest]
	for i := 0; i < candidates && next != nil; i++ {
		if q.same(next.line.tail(0)) {
			if !q.busy(next.name) {
				return next, true
			}
			if s == nil {
				s = next
			}
		}
		next = next.headNext
	}
	return s, false
}

// start places the request on a new branch, a sub-agent that s may have started.
func (q *query) start(s *state) Placement {
	p := Placement{New: true, Kind: SubAgent}
	q.under(&p, s)
	return p
}

// answers says whether the part that is not shared holds answers of the model: a
// new conversation holds none.
func (q *query) answers() bool {
	for _, it := range q.items[q.matched:] {
		if it.Role == Assistant {
			return true
		}
	}
	return false
}

// sibling says whether the request starts a sub-agent like the one that s is.
func (q *query) sibling(s *state) bool {
	shared := sizeOf(q.items[:q.matched])
	return s.sub && shared < s.first && 2*q.size <= 3*s.first && 3*q.size >= 2*s.first && !q.answers()
}

// older says whether the request is larger than a new conversation beside s.
func (q *query) older(s *state) bool { return 2*q.size > 3*s.first }

// brief says whether what is not shared is as short as what starts a new
// conversation. Summaries are longer: of 98 in recorded sessions one is below 1/16
// of Options.Drop.
func (q *query) brief() bool { return 16*sizeOf(q.items[q.matched:]) < q.f.opt.Drop }

// most says whether the request holds nearly all of the context l.
func (q *query) most(l *line) bool {
	return 10*sizeOf(q.items[:q.matched]) >= 9*l.end.size
}

// summary says whether what is not shared may be a summary, not a new message after
// a return to an earlier place.
func (q *query) summary() bool {
	return q.matched < len(q.items) && (!q.brief() || q.matched <= q.lead+1)
}

// on places the request on s.
func (q *query) on(s *state, kind Kind) Placement {
	p := Placement{Branch: s.name, Kind: kind}
	end := s.line.end
	p.Kept, p.KeptSize = q.shared(end)
	p.Dropped, p.DroppedSize = end.alone(p.Kept)
	if q.matched > p.Kept {
		p.Revived = q.matched
	}
	return p
}

func (q *query) fork(s *state) Placement {
	p := Placement{New: true, Kind: Fork}
	q.under(&p, s)
	return p
}

// under makes s the parent of a new branch.
func (q *query) under(p *Placement, s *state) {
	p.Parent = s.name
	p.Kept, p.KeptSize = q.shared(s.line.end)
	if q.matched > p.Kept {
		p.Revived = q.matched
	}
}

// shared is how many items the request shares with the context that ends at end,
// and their size.
func (q *query) shared(end *node) (items, size int) {
	below, n := end, q.at
	// The lowest node on both paths.
	for below != n {
		if below.depth > n.depth {
			below = below.parent
		} else {
			n = n.parent
		}
	}
	items = min(n.depth, q.matched)
	return items, n.sizeAt(items)
}

// shorter says whether the request is so much shorter than the context of s that
// it replaces it by a summary.
func (q *query) shorter(s *state) bool {
	old := s.line.end.size
	return old-q.size >= q.f.opt.Drop && 4*old >= 3*q.f.largest || 10*q.size < 6*old
}

// same says whether a context is the request with another system prompt: at least
// half of its conversation is the same, and not the first message only, which agents
// of several roles may share.
func (q *query) same(old []Item) bool {
	old = old[lead(old):]
	items := q.items[q.lead:]
	n := 0
	for n < len(old) && n < len(items) && old[n].Digest == items[n].Digest {
		n++
	}
	return n > 1 && 2*n >= len(old)
}

// pruned says whether the request from matched on is the rest of l with at least one medium
// or tool result replaced by something smaller or left out, and an item that is
// equal behind it.
func (q *query) pruned(l *line) bool {
	if o := l.item(q.matched); o == nil || !o.Media && o.Role != Tool {
		return false
	}
	old := l.tail(q.matched)
	items, changed, equal := q.items[q.matched:], false, false
	for i, o := range old {
		switch {
		case len(items) > 0 && items[0].Digest == o.Digest:
			items = items[1:]
			equal = changed
		case !o.Media && o.Role != Tool:
			return false
		default:
			changed, equal = true, false
			left := len(items) > 0 && i+1 < len(old) && items[0].Digest == old[i+1].Digest
			if !left && len(items) > 0 && items[0].Role == o.Role && !items[0].Media && items[0].Size < o.Size {
				items = items[1:]
			}
		}
	}
	return equal
}

// near returns up to candidates lines below where the request parts, those used
// last first.
func (q *query) near() []*line {
	type entry struct {
		n    *node
		l    *line
		seq  uint64
		only bool // without siblings
	}
	var out []*line
	front := make([]entry, 0, 2*visits)
	addLine := func(l *line) {
		if l != nil {
			front = append(front, entry{l: l, seq: l.seq})
		}
	}
	addNode := func(n *node, only bool) {
		if n != nil {
			front = append(front, entry{n: n, seq: n.touched, only: only})
		}
	}
	addNode(q.at, true)
	for i := 0; (i < visits || len(out) == 0) && len(front) > 0 && len(out) < candidates; i++ {
		best := 0
		for j := range front {
			if front[j].seq > front[best].seq || front[j].seq == front[best].seq && front[j].l != nil {
				best = j
			}
		}
		e := front[best]
		front[best] = front[len(front)-1]
		front = front[:len(front)-1]
		if e.l != nil {
			out = append(out, e.l)
			addLine(e.l.next)
			continue
		}
		addLine(e.n.lines)
		addNode(e.n.newest, false)
		if !e.only {
			addNode(e.n.next, false)
		}
	}
	return out
}
