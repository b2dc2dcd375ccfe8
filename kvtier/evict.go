package kvtier

import "fmt"

// Readers is what a table asks about the slots that others read. Readers lease
// and touch blocks in shared memory without telling the table, which therefore
// looks when it must decide.
type Readers interface {
	Leased(id SlotID) bool
	LastUse(id SlotID) int64
}

// Victim returns the block to evict next: a sealed block without resident children
// and without lease. Dead blocks go first, then idle ones, those that were used
// longest ago first; then those of waiting branches, of the highest score first;
// those of running branches never. Parents follow their children. now is the
// current time in the unit of LastUse; a leased leaf counts as used now. It returns
// false when nothing may be evicted.
//
// The heap is corrected only where it is looked at: a leaf that was used since
// moves back. Each call is O(log n) for every leaf that was touched since it was
// last looked at, and for every leased one that would go before the victim, plus
// one.
func (s *Slots) Victim(r Readers, now int64) (SlotID, bool) {
	id, ok := s.unneeded(r, now)
	if ok && (s.freshFor == 0 || s.meta[id].first != 0 || len(s.byID) == 0 || now-s.meta[id].use >= s.freshFor) {
		return id, true
	}
	if held, found := s.waiting(r); found {
		return held, true
	}
	return id, ok
}

// Fresh protects leaves that no branch ever held for that long after their last
// use: a turn whose context is not known yet is computing them. They then go after
// those of waiting branches. 0, the default, protects nothing.
func (s *Slots) Fresh(ns int64) { s.freshFor = ns }

// unneeded returns the first dead or idle leaf without lease.
func (s *Slots) unneeded(r Readers, now int64) (SlotID, bool) {
	for range len(s.leaves.ids) {
		id := s.leaves.ids[0]
		m := &s.meta[id]
		leased := r.Leased(id)
		use := r.LastUse(id)
		if leased {
			use = max(use, now)
		}
		if use <= m.use {
			if leased {
				break
			}
			return id, true
		}
		m.use = use
		s.leaves.down(s.meta, 0)
	}
	return s.unleased(r)
}

// unleased looks past leased leaves for the first one that may go. It runs only
// when the first leaf of all is leased.
func (s *Slots) unleased(r Readers) (found SlotID, ok bool) {
	less := func(i, j int32) bool { return s.leaves.less(s.meta, s.leaves.ids[i], s.leaves.ids[j]) }
	for range len(s.leaves.ids) {
		stale := int32(none)
		s.queue = walk(len(s.leaves.ids), less, s.queue, func(i int32) bool {
			id := s.leaves.ids[i]
			if r.Leased(id) {
				return true
			}
			found, ok = id, true
			if use := r.LastUse(id); use > s.meta[id].use {
				s.meta[id].use, stale = use, i
			}
			return false
		})
		if stale == none {
			return found, ok
		}
		s.leaves.down(s.meta, int(stale))
	}
	return found, ok
}

// waiting returns the leaf of a waiting branch that goes first and is not leased.
func (s *Slots) waiting(r Readers) (found SlotID, ok bool) {
	less := func(i, j int32) bool { return s.sooner(s.held[i], s.held[j]) }
	s.queue = walk(len(s.held), less, s.queue, func(i int32) bool {
		g := s.held[i]
		if s.top(g).class >= ClassRunning {
			return false // as are all behind it
		}
		found = SlotID(s.groups[g].slot)
		ok = !r.Leased(found)
		return !ok
	})
	return found, ok
}

// ClassOf returns the class of a leaf, and of any other block the class that it has
// by the branches that end with it; false when nothing is sealed there.
func (s *Slots) ClassOf(id SlotID) (Class, bool) {
	if int(id) >= len(s.meta) || s.meta[id].state != SlotSealed {
		return ClassDead, false
	}
	switch m := &s.meta[id]; {
	case m.group != none:
		return s.top(m.group).class, true
	case m.flags&flagDead != 0:
		return ClassDead, true
	default:
		return ClassIdle, true
	}
}

// Order appends the leaves that go next to dst, at most n, in the order as it stands
// and without regard to leases. A parent of one that goes may come before the next.
func (s *Slots) Order(n int, dst []SlotID) []SlotID {
	less := func(i, j int32) bool { return s.leaves.less(s.meta, s.leaves.ids[i], s.leaves.ids[j]) }
	s.queue = walk(min(len(s.leaves.ids), 1<<31-1), less, s.queue, func(i int32) bool {
		if n > 0 {
			dst = append(dst, s.leaves.ids[i])
		}
		n--
		return n > 0
	})
	sooner := func(i, j int32) bool { return s.sooner(s.held[i], s.held[j]) }
	s.queue = walk(len(s.held), sooner, s.queue, func(i int32) bool {
		if g := s.held[i]; n > 0 && s.top(g).class < ClassRunning {
			dst = append(dst, SlotID(s.groups[g].slot))
		}
		n--
		return n > 0
	})
	return dst
}

// Leaf reports whether a slot holds a block without resident children.
func (s *Slots) Leaf(id SlotID) bool {
	return int(id) < len(s.meta) && s.meta[id].state == SlotSealed && s.meta[id].child == none
}

// Evict frees the slot of a block without resident children.
func (s *Slots) Evict(id SlotID) (Block, error) {
	b, ok := s.Get(id)
	if !ok {
		return Block{}, fmt.Errorf("%w: slot %d", ErrNotSealed, id)
	}
	if s.meta[id].child != none {
		return Block{}, fmt.Errorf("%w: %s has %d", ErrNotLeaf, b.Key.Short(), s.children(id))
	}
	return s.Remove(id)
}

// Remove frees the slot of a block, resident children or not: for blocks found
// corrupt. Its children stay; they are found again by whoever computes it anew.
// Branches that ended with it end with its parent.
func (s *Slots) Remove(id SlotID) (Block, error) {
	b, ok := s.Get(id)
	if !ok {
		return Block{}, fmt.Errorf("%w: slot %d", ErrNotSealed, id)
	}
	m, x := &s.meta[id], int32(id)
	dead := m.flags&flagDead != 0
	s.unleaf(x)
	s.index.remove(s.meta, id)
	s.owns(m.first, -1)
	s.orphan(x)
	p := s.parentSlot(x)
	s.detach(x)
	if g := m.group; g != none {
		m.group = none
		s.retreat(g, p)
	}
	m.state, m.flags, m.first, m.parent = SlotFree, 0, 0, none
	s.sealed--
	s.free = append(s.free, id)
	if p != none {
		s.widow(p, dead)
	}
	return b, nil
}

// widow ranks a block that lost a child. With the last one, a dead one, it is dead
// too, unless somebody ends with it or contexts of others went through it.
func (s *Slots) widow(id int32, dead bool) {
	m := &s.meta[id]
	if dead && m.child == none && m.group == none && m.flags&flagShared == 0 {
		m.flags |= flagDead
	}
	s.settle(id)
}

// First returns the branch whose context went through a block first, 0 for none, and
// whether those of others did too.
func (s *Slots) First(id SlotID) (b BranchID, shared bool) {
	if int(id) >= len(s.meta) || s.meta[id].state != SlotSealed {
		return 0, false
	}
	return s.meta[id].first, s.meta[id].flags&flagShared != 0
}

// Whole reports whether all blocks before a block in its chain are in the table. It
// walks them.
func (s *Slots) Whole(id SlotID) bool {
	x := int32(id)
	for s.meta[x].index > 0 {
		if x = s.parentSlot(x); x == none {
			return false
		}
	}
	return true
}
