package branch

import "slices"

// Forest holds the contexts of one session's branches. It is not safe for use by
// several goroutines.
type Forest struct {
	opt      Options
	root     *node
	branches map[string]*state
	heads    map[[16]byte]*state // by the first item behind the system prompt; the one set last
	// Branches by last use, most recent first.
	newest, oldest *state
	seq            uint64
	items          int // in the tree's edges
	pasts          int // superseded contexts of all branches
	largest        int // size of the largest context so far
	placed         map[string]placed
	placedOrder    []string
}

// placed is what Place said of a branch, until Set follows.
type placed struct{ made, sub, hinted bool }

// pending is how many placements may wait for their Set.
const pending = 1024

func (f *Forest) remember(branch string, p placed) {
	if _, ok := f.placed[branch]; !ok {
		if p == (placed{}) {
			return
		}
		if len(f.placedOrder) == pending {
			delete(f.placed, f.placedOrder[0])
			f.placedOrder = append(f.placedOrder[:0], f.placedOrder[1:]...)
		}
		f.placedOrder = append(f.placedOrder, branch)
	}
	f.placed[branch] = p
}

func (f *Forest) recall(branch string) placed {
	p, ok := f.placed[branch]
	if ok {
		delete(f.placed, branch)
		i := slices.Index(f.placedOrder, branch)
		f.placedOrder = slices.Delete(f.placedOrder, i, i+1)
	}
	return p
}

// NewForest makes an empty forest.
func NewForest(o Options) *Forest {
	return &Forest{
		opt: o.withDefaults(), root: &node{},
		branches: map[string]*state{}, heads: map[[16]byte]*state{}, placed: map[string]placed{},
	}
}

// Len is the number of branches.
func (f *Forest) Len() int { return len(f.branches) }

// Set says that branch's context is these items since at, in ns, which no rule
// reads. An unknown branch is made; it is a sub-agent when Place said so or when it
// shares at most system prompt and tools with the context of parent, which may be
// unknown. The context before is superseded unless items extend it.
func (f *Forest) Set(branch, parent string, items []Item, _ int64) {
	if len(items) > f.opt.MaxContext {
		items = items[:f.opt.MaxContext]
	}
	s, said := f.branches[branch], f.recall(branch)
	if s == nil {
		s = &state{name: branch, first: sizeOf(items), sub: said.sub || !said.made && f.apart(parent, items)}
		f.branches[branch] = s
	} else {
		f.unlist(s)
		f.unhead(s)
	}
	s.hinted = said.hinted
	f.list(s)
	f.move(s, f.insert(items))
	f.head(s, items)
	f.limit(s)
}

// Append adds an item, commonly the answer, to branch's context. An unknown branch
// is left alone: its context is not known.
func (f *Forest) Append(branch string, item Item, _ int64) {
	s := f.branches[branch]
	if s == nil || s.line.end.depth >= f.opt.MaxContext {
		return
	}
	f.unlist(s)
	f.list(s)
	n := s.line.end
	// A leaf of one line grows in place.
	if n.parent != nil && len(n.kids) == 0 && n.lines == s.line && s.line.next == nil {
		n.edge = append(n.edge, item)
		n.depth++
		n.size += item.size()
		f.items++
		f.seq++
		s.line.seq = f.seq
		n.touch(f.seq)
		f.largest = max(f.largest, n.size)
	} else {
		kid := n.kids[item.Digest]
		switch {
		case kid == nil:
			kid = &node{parent: n, edge: []Item{item}, depth: n.depth + 1, size: n.size + item.size()}
			f.items++
			n.attach(kid)
		case len(kid.edge) > 1:
			kid = f.split(kid, 1)
		}
		f.move(s, kid)
	}
	f.limit(s)
}

// Remove forgets branch. Branches that came from it stay.
func (f *Forest) Remove(branch string) {
	if s := f.branches[branch]; s != nil {
		f.forget(s)
	}
}

// apart says whether items share at most system prompt and tools with the live
// context of branch parent, which is known.
func (f *Forest) apart(parent string, items []Item) bool {
	s, k := f.branches[parent], lead(items)
	if s == nil || k == len(items) {
		return false
	}
	for i := range k {
		if it := s.line.item(i); it == nil || it.Digest != items[i].Digest {
			return true
		}
	}
	it := s.line.item(k)
	return it == nil || it.Digest != items[k].Digest
}

// move makes the context that ends at n the live one of s.
func (f *Forest) move(s *state, n *node) {
	f.seq++
	f.largest = max(f.largest, n.size)
	old := s.line
	s.line = &line{branch: s, live: true}
	s.line.put(n, f.seq)
	n.count(1)
	// Superseded contexts that the new one holds whole are live again.
	kept := s.past[:0]
	for _, l := range s.past {
		if l.end.above(n) {
			f.prune(l.take())
			f.pasts--
		} else {
			kept = append(kept, l)
		}
	}
	clear(s.past[len(kept):])
	s.past = kept
	switch {
	case old == nil:
	case old.end.above(n):
		old.end.count(-1)
		f.prune(old.take())
	default:
		old.end.count(-1)
		old.live = false
		s.past = append(s.past, old)
		f.pasts++
		for len(s.past) > f.opt.MaxPast {
			f.dropPast(s)
		}
	}
}

// dropPast forgets the oldest superseded context of s.
func (f *Forest) dropPast(s *state) {
	f.pasts--
	l := s.past[0]
	copy(s.past, s.past[1:])
	s.past[len(s.past)-1] = nil
	s.past = s.past[:len(s.past)-1]
	f.prune(l.take())
}

func (f *Forest) forget(s *state) {
	for len(s.past) > 0 {
		f.dropPast(s)
	}
	s.line.end.count(-1)
	f.prune(s.line.take())
	f.unlist(s)
	f.unhead(s)
	delete(f.branches, s.name)
}

// limit forgets superseded contexts and then branches, oldest first, until the
// forest is within its bounds. keep, which was just used, stays.
func (f *Forest) limit(keep *state) {
	for len(f.branches) > f.opt.MaxBranches && f.oldest != keep {
		f.forget(f.oldest)
	}
	for s := f.oldest; s != nil && f.pasts > 0 && f.items > f.opt.MaxItems; s = s.prev {
		for len(s.past) > 0 && f.items > f.opt.MaxItems {
			f.dropPast(s)
		}
	}
	for f.items > f.opt.MaxItems && f.oldest != keep {
		f.forget(f.oldest)
	}
}

// head puts s first among the branches whose conversation starts with the same
// item, so that they are found when the system prompt in front of it changes.
func (f *Forest) head(s *state, items []Item) {
	k := lead(items)
	if k == len(items) {
		return
	}
	s.head, s.headed = items[k].Digest, true
	s.headPrev, s.headNext = nil, f.heads[s.head]
	if s.headNext != nil {
		s.headNext.headPrev = s
	}
	f.heads[s.head] = s
}

func (f *Forest) unhead(s *state) {
	if !s.headed {
		return
	}
	switch {
	case s.headPrev != nil:
		s.headPrev.headNext = s.headNext
	case s.headNext != nil:
		f.heads[s.head] = s.headNext
	default:
		delete(f.heads, s.head)
	}
	if s.headNext != nil {
		s.headNext.headPrev = s.headPrev
	}
	s.headed, s.headPrev, s.headNext = false, nil, nil
}

// lead is how many leading items are system prompt or tools.
func lead(items []Item) int {
	for i, it := range items {
		if it.Role != System {
			return i
		}
	}
	return len(items)
}

func (f *Forest) list(s *state) {
	s.prev, s.next = nil, f.newest
	if f.newest != nil {
		f.newest.prev = s
	} else {
		f.oldest = s
	}
	f.newest = s
}

func (f *Forest) unlist(s *state) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		f.newest = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		f.oldest = s.prev
	}
	s.prev, s.next = nil, nil
}
