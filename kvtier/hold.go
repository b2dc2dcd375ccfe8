package kvtier

import (
	"math"
	"slices"
)

// Flags of a slot.
const (
	flagShared uint8 = 1 << iota // contexts of more than one branch went through it
	flagDead                     // a leaf that goes before all others
)

// Hold says that the context of branch b ends with block tail from here on. It is
// walked upwards over the blocks that are new to b. What only its earlier context
// held is dead. A tail that is not there is remembered until it is sealed, the last
// one for each branch; until then the earlier context stays held. So it does when
// blocks between it and the tail are missing: what stands behind a gap is of no use.
//
// A branch that is not known waits with score 0 until Rank says otherwise. Hold
// returns how many leading blocks of the branch's context are in the table; it does
// not notice a block before the last that was removed as corrupt.
func (s *Slots) Hold(b BranchID, tail Key) (resident int) {
	h := s.branch(b)
	id, ok := s.index.find(s.meta, &tail)
	if !ok {
		if !tail.IsZero() {
			s.expect(h, tail)
		}
		return s.resident(h)
	}
	s.forgetTail(h)
	s.hold(h, int32(id))
	return s.resident(h)
}

// hold moves branch h to the block that its context ends with.
func (s *Slots) hold(h, id int32) {
	old := int32(none)
	if g := s.holders[h].group; g != none {
		old = s.groups[g].slot
	}
	if old == id {
		return
	}
	further, torn := s.pass(h, id, old)
	if torn && old != none {
		return // what stands before the gap is all that is of use
	}
	if old != none {
		s.exit(h)
		s.leave(old, !further)
	}
	s.enter(s.groupAt(id), h)
	s.settle(id)
}

// pass marks the blocks of the chain that ends with block id as passed by branch h,
// upwards until there is nothing to mark. It reports whether the block old, where
// the branch stood, is one of them, and whether the walk ended at a gap: a block
// whose parent is not in the table.
func (s *Slots) pass(h, id, old int32) (further, torn bool) {
	floor := int32(none)
	if old != none {
		floor = s.meta[old].index
	}
	for x := id; ; {
		changed := s.mark(x, s.holders[h].id, false)
		p := s.parentSlot(x)
		if p == none || p == old {
			return p != none, p == none && s.meta[x].index > 0
		}
		if !changed && s.meta[x].index <= floor {
			return false, s.torn(x)
		}
		if !changed && old == none {
			return false, false
		}
		x = p
	}
}

// torn reports whether the chain that ends with block x lacks one before it.
func (s *Slots) torn(x int32) bool {
	for s.meta[x].index > 0 {
		if x = s.parentSlot(x); x == none {
			return true
		}
	}
	return false
}

// mark notes that branch first, and more than one when shared is set, passed block
// x. It reports whether that was not known. What is known of a block is known of
// all before it in its chain.
func (s *Slots) mark(x int32, first BranchID, shared bool) (changed bool) {
	m := &s.meta[x]
	switch {
	case first == 0:
		return false
	case m.first == 0:
		m.first, changed = first, true
		s.owns(first, 1)
	case m.first != first:
		shared = true
	}
	if shared && m.flags&flagShared == 0 {
		m.flags |= flagShared
		changed = true
	}
	return changed
}

// inherit gives a block that is placed, and the blocks before it, the marks of the
// children that were there before it.
func (s *Slots) inherit(id int32) {
	for c := s.meta[id].child; c != none; c = s.meta[c].next {
		s.mark(id, s.meta[c].first, s.meta[c].flags&flagShared != 0)
	}
	for x, p := id, s.parentSlot(id); p != none; x, p = p, s.parentSlot(p) {
		if !s.mark(p, s.meta[x].first, s.meta[x].flags&flagShared != 0) {
			return
		}
	}
}

func (s *Slots) owns(b BranchID, n int32) {
	if h, ok := s.byID[b]; ok {
		s.holders[h].own += n
	}
}

// leave ranks a block anew after a branch that ended with it went elsewhere.
func (s *Slots) leave(id int32, dead bool) {
	m := &s.meta[id]
	if m.child == none && m.group == none {
		m.flags &^= flagDead
		if dead && m.flags&flagShared == 0 {
			m.flags |= flagDead
		}
	}
	s.settle(id)
}

// settle puts a block to its place among the leaves, whatever changed. At most one
// block is out of place at a time.
func (s *Slots) settle(id int32) {
	m := &s.meta[id]
	if m.child != none {
		s.unleaf(id)
		return
	}
	if m.group != none {
		c := s.top(m.group).class
		if c >= ClassWaiting {
			if m.leaf != none {
				s.leaves.remove(s.meta, int(m.leaf))
			}
			s.rank(m.group)
			return
		}
		s.unrank(m.group)
		if m.leaf != none && (m.flags&flagDead != 0) != (c == ClassDead) {
			s.leaves.remove(s.meta, int(m.leaf))
		}
		m.flags &^= flagDead
		if c == ClassDead {
			m.flags |= flagDead
		}
	}
	if m.leaf == none {
		s.leaves.push(s.meta, SlotID(id))
	} else {
		s.leaves.fix(s.meta, int(m.leaf))
	}
}

// unleaf takes a block that is no leaf, or is about to go, from where leaves are.
func (s *Slots) unleaf(id int32) {
	m := &s.meta[id]
	if m.leaf != none {
		s.leaves.remove(s.meta, int(m.leaf))
	}
	if m.group != none {
		s.unrank(m.group)
	}
	m.flags &^= flagDead
}

// Drop says that branch b is no more. What only it held is dead, or idle.
func (s *Slots) Drop(b BranchID, dead bool) {
	h, ok := s.byID[b]
	if !ok {
		return
	}
	s.forgetTail(h)
	if slot := s.exit(h); slot != none {
		s.leave(slot, dead)
	}
	delete(s.byID, b)
	s.holders[h] = holder{group: none}
	s.freeHolders = append(s.freeHolders, h)
}

// Rank says how much the blocks of branch b are needed: those of a higher score go
// first within the class of waiting blocks. Idle and dead ones go by last use.
func (s *Slots) Rank(b BranchID, c Class, score float64) {
	i := s.branch(b)
	h := &s.holders[i]
	if math.IsNaN(score) {
		score = math.Inf(1)
	}
	if h.class == c && h.score == score {
		return
	}
	h.class, h.score = c, score
	if h.group == none {
		return
	}
	g := h.group
	s.fixMember(s.groups[g].members, int(h.pos))
	s.settle(s.groups[g].slot)
}

// Held returns how many leading blocks of the branch's context are in the table,
// and how many blocks of the table it was the first to hold.
func (s *Slots) Held(b BranchID) (resident, own int) {
	h, ok := s.byID[b]
	if !ok {
		return 0, 0
	}
	return s.resident(h), int(s.holders[h].own)
}

// resident is the number of leading blocks of a branch's context.
func (s *Slots) resident(h int32) int {
	g := s.holders[h].group
	if g == none {
		return 0
	}
	return int(s.meta[s.groups[g].slot].index) + 1
}

// branch returns the entry of a branch, new when there is none.
func (s *Slots) branch(b BranchID) int32 {
	if h, ok := s.byID[b]; ok {
		return h
	}
	h := int32(len(s.holders))
	if last := len(s.freeHolders) - 1; last >= 0 {
		h, s.freeHolders = s.freeHolders[last], s.freeHolders[:last]
	} else {
		s.holders = append(s.holders, holder{})
	}
	s.holders[h] = holder{id: b, class: ClassWaiting, group: none}
	s.byID[b] = h
	return h
}

// expect remembers the tail of branch h until it is sealed.
func (s *Slots) expect(h int32, tail Key) {
	x := &s.holders[h]
	if x.waits && x.pending == tail {
		return
	}
	s.forgetTail(h)
	x.waits, x.pending, x.prev, x.next = true, tail, none, none
	if head, ok := s.pending[tail]; ok {
		x.next = head
		s.holders[head].prev = h
	}
	s.pending[tail] = h
}

// forgetTail ends the wait of branch h for its tail.
func (s *Slots) forgetTail(h int32) {
	x := &s.holders[h]
	if !x.waits {
		return
	}
	x.waits = false
	if x.next != none {
		s.holders[x.next].prev = x.prev
	}
	switch {
	case x.prev != none:
		s.holders[x.prev].next = x.next
	case x.next != none:
		s.pending[x.pending] = x.next
	default:
		delete(s.pending, x.pending)
	}
}

// arrived holds the block that branches waited for.
func (s *Slots) arrived(id int32) {
	for {
		h, ok := s.pending[s.meta[id].key]
		if !ok {
			return
		}
		s.forgetTail(h)
		s.hold(h, id)
	}
}

// holderSteps bounds what Holders looks at: some 10 ms.
const holderSteps = 1 << 18

// Holders appends the branches whose context goes through block id to dst, in order
// of their numbers. It is for people and looks at every branch; when that were too
// much the list is not complete.
func (s *Slots) Holders(id SlotID, dst []BranchID) []BranchID {
	if int(id) >= len(s.meta) || s.meta[id].state != SlotSealed {
		return dst
	}
	floor, steps := s.meta[id].index, holderSteps
	from := len(dst)
	for g := range s.groups {
		if len(s.groups[g].members) == 0 {
			continue
		}
		x := s.groups[g].slot
		for ; x != none && s.meta[x].index > floor && steps > 0; steps-- {
			x = s.parentSlot(x)
		}
		if x != int32(id) {
			continue
		}
		for _, h := range s.groups[g].members {
			dst = append(dst, s.holders[h].id)
		}
	}
	slices.Sort(dst[from:])
	return dst
}
