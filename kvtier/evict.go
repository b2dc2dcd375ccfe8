package kvtier

import "fmt"

// Readers is what a table asks about the slots that others read. Readers lease
// and touch blocks in shared memory without telling the table, which therefore
// looks when it must decide.
type Readers interface {
	Leased(id SlotID) bool
	LastUse(id SlotID) int64
}

// Victim returns the block to evict next: of the sealed blocks without resident
// children and without lease, the one that was used longest ago. Parents follow
// their children. now is the current time in the unit of LastUse; a leased leaf
// counts as used now. It returns false when nothing may be evicted.
//
// The heap is corrected only where it is looked at: a leaf that was used since
// moves back. Each call is O(log n) for every leaf that was touched since it was
// last looked at, plus one.
func (s *Slots) Victim(r Readers, now int64) (SlotID, bool) {
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
		s.leaves.later(s.meta, int(m.leaf))
	}
	return s.scan(r)
}

// scan looks at every leaf for one without a lease. It runs only when every leaf
// was leased or used since it was last looked at.
func (s *Slots) scan(r Readers) (SlotID, bool) {
	best, found := SlotID(0), false
	for _, id := range s.leaves.ids {
		if !r.Leased(id) && (!found || s.leaves.less(s.meta, id, best)) {
			best, found = id, true
		}
	}
	return best, found
}

// Leaf reports whether a slot holds a block without resident children.
func (s *Slots) Leaf(id SlotID) bool {
	return int(id) < len(s.meta) && s.meta[id].state == SlotSealed && s.meta[id].children == 0
}

// Evict frees the slot of a block without resident children.
func (s *Slots) Evict(id SlotID) (Block, error) {
	b, ok := s.Get(id)
	if !ok {
		return Block{}, fmt.Errorf("%w: slot %d", ErrNotSealed, id)
	}
	if n := s.meta[id].children; n > 0 {
		return Block{}, fmt.Errorf("%w: %s has %d", ErrNotLeaf, b.Key.Short(), n)
	}
	return s.Remove(id)
}

// Remove frees the slot of a block, resident children or not: for blocks found
// corrupt. Its children stay; they are found again by whoever computes it anew.
func (s *Slots) Remove(id SlotID) (Block, error) {
	b, ok := s.Get(id)
	if !ok {
		return Block{}, fmt.Errorf("%w: slot %d", ErrNotSealed, id)
	}
	m := &s.meta[id]
	if m.leaf != noLeaf {
		s.leaves.remove(s.meta, int(m.leaf))
	}
	s.index.remove(s.meta, id)
	if m.children > 0 {
		s.orphans[m.key] = orphans{count: m.children, index: m.index + 1}
	}
	if m.index > 0 {
		s.leave(m.parent)
	}
	m.state, m.children = SlotFree, 0
	s.sealed--
	s.free = append(s.free, id)
	return b, nil
}

// leave takes one child from parent, wherever it is counted.
func (s *Slots) leave(parent Key) {
	if p, ok := s.index.find(s.meta, &parent); ok {
		s.meta[p].children--
		if s.meta[p].children == 0 {
			s.leaves.push(s.meta, p)
		}
		return
	}
	o := s.orphans[parent]
	if o.count--; o.count > 0 {
		s.orphans[parent] = o
	} else {
		delete(s.orphans, parent)
	}
}
