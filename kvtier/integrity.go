package kvtier

import "fmt"

// CheckIntegrity recomputes everything that the table keeps incrementally and
// compares: allocated + free = total (invariant 3 of the design), the index holds
// exactly the sealed keys, lists of children are whole, the heaps hold exactly the
// leaves in order, and every branch stands where the table says. It is O(n) and for tests, debug builds and `doctor`.
func (s *Slots) CheckIntegrity() error {
	if err := s.checkStates(); err != nil {
		return err
	}
	if err := s.checkTree(); err != nil {
		return err
	}
	if err := s.checkLeaves(); err != nil {
		return err
	}
	return s.checkBranches()
}

func (s *Slots) checkStates() error {
	seen := make([]bool, len(s.meta))
	for _, id := range s.free {
		if s.meta[id].state != SlotFree || seen[id] {
			return fmt.Errorf("%w: slot %d is on the free list twice or not free", ErrIntegrity, id)
		}
		seen[id] = true
	}
	for id := range s.reserved {
		if s.meta[id].state != SlotReserved {
			return fmt.Errorf("%w: slot %d is listed as reserved and has state %d", ErrIntegrity, id, s.meta[id].state)
		}
	}
	sealed := 0
	for id := range s.meta {
		if s.meta[id].state != SlotSealed {
			continue
		}
		sealed++
		if got, ok := s.index.find(s.meta, &s.meta[id].key); !ok || got != SlotID(id) {
			return fmt.Errorf("%w: slot %d is not found under its key %s", ErrIntegrity, id, s.meta[id].key.Short())
		}
	}
	indexed := 0
	for _, b := range s.index.buckets {
		if b != 0 {
			indexed++
		}
	}
	if c := s.Counts(); c.Free+c.Reserved+c.Sealed != c.Total || c.Sealed != sealed || indexed != sealed {
		return fmt.Errorf("%w: %d free + %d reserved + %d sealed of %d slots, %d indexed, %d counted as sealed",
			ErrIntegrity, c.Free, c.Reserved, c.Sealed, c.Total, indexed, sealed)
	}
	return nil
}

func (s *Slots) checkTree() error {
	for id := range s.meta {
		m := &s.meta[id]
		if m.state != SlotSealed {
			continue
		}
		if err := s.checkChildren(int32(id), m.child, m.index+1); err != nil {
			return err
		}
		parent := s.parentKey(SlotID(id))
		if p, ok := s.index.find(s.meta, &parent); ok && m.index > 0 && m.parent != int32(p) {
			return fmt.Errorf("%w: slot %d does not point to its parent in slot %d", ErrIntegrity, id, p)
		}
	}
	listed := 0
	for n := range s.parents.list {
		e := &s.parents.list[n]
		if at, ok := s.parents.at[rootKey{e.key, e.root}]; !ok || at != int32(n) {
			continue // free
		}
		listed++
		if e.child == none {
			return fmt.Errorf("%w: absent parent %s has no children", ErrIntegrity, e.key.Short())
		}
		if err := s.checkChildren(^int32(n), e.child, e.index); err != nil {
			return err
		}
	}
	if listed != len(s.parents.at) || listed+len(s.parents.free) != len(s.parents.list) {
		return fmt.Errorf("%w: %d absent parents found, %d listed, %d free of %d",
			ErrIntegrity, listed, len(s.parents.at), len(s.parents.free), len(s.parents.list))
	}
	return nil
}

// checkChildren follows the list of a parent's children.
func (s *Slots) checkChildren(ref, first, index int32) error {
	prev := int32(none)
	for c, n := first, 0; c != none; prev, c, n = c, s.meta[c].next, n+1 {
		m := &s.meta[c]
		if m.state != SlotSealed || m.parent != ref || m.prev != prev || m.index != index || n > len(s.meta) {
			return fmt.Errorf("%w: slot %d of state %d with parent %d and index %d stands among the children of %d with index %d",
				ErrIntegrity, c, m.state, m.parent, m.index, ref, index)
		}
		if ref >= 0 {
			if err := s.checkMarks(ref, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMarks compares what is known of a parent with what is known of its child:
// each branch that passed the child passed the parent.
func (s *Slots) checkMarks(parent, child int32) error {
	p, c := &s.meta[parent], &s.meta[child]
	shared := p.flags&flagShared != 0
	if c.first != 0 && p.first == 0 || c.first != p.first && c.first != 0 && !shared || c.flags&flagShared != 0 && !shared {
		return fmt.Errorf("%w: slot %d was passed by branch %d, its parent in slot %d by %d, shared %v",
			ErrIntegrity, child, c.first, parent, p.first, shared)
	}
	return nil
}

func (s *Slots) checkLeaves() error {
	leaves, held := 0, 0
	for id := range s.meta {
		m := &s.meta[id]
		isLeaf := m.state == SlotSealed && m.child == none
		isHeld := isLeaf && m.group != none && s.top(m.group).class >= ClassWaiting
		if m.state != SlotSealed && m.group != none {
			return fmt.Errorf("%w: branches end with slot %d, which has state %d", ErrIntegrity, id, m.state)
		}
		if (isLeaf && !isHeld) != (m.leaf != none) || m.group != none && isHeld != (s.groups[m.group].heap != none) {
			return fmt.Errorf("%w: slot %d leaf %v, held %v, is not where it belongs", ErrIntegrity, id, isLeaf, isHeld)
		}
		switch {
		case isHeld:
			held++
		case isLeaf:
			leaves++
			if int(m.leaf) >= len(s.leaves.ids) || s.leaves.ids[m.leaf] != SlotID(id) {
				return fmt.Errorf("%w: slot %d is not at its place %d in the heap", ErrIntegrity, id, m.leaf)
			}
		}
	}
	if leaves != len(s.leaves.ids) || held != len(s.held) {
		return fmt.Errorf("%w: %d leaves and %d held ones, %d and %d in the heaps", ErrIntegrity, leaves, held, len(s.leaves.ids), len(s.held))
	}
	for i := 1; i < len(s.leaves.ids); i++ {
		if s.leaves.less(s.meta, s.leaves.ids[i], s.leaves.ids[(i-1)/2]) {
			return fmt.Errorf("%w: heap out of order at %d", ErrIntegrity, i)
		}
	}
	for i, g := range s.held {
		if s.groups[g].heap != int32(i) || i > 0 && s.sooner(g, s.held[(i-1)/2]) {
			return fmt.Errorf("%w: heap of held leaves out of order at %d", ErrIntegrity, i)
		}
	}
	return nil
}

// checkBranches follows every branch to the block that it ends with and back.
func (s *Slots) checkBranches() error {
	own, pending := map[BranchID]int32{}, 0
	for id := range s.meta {
		if s.meta[id].state == SlotSealed {
			own[s.meta[id].first]++
		}
	}
	for b, h := range s.byID {
		x := &s.holders[h]
		if x.id != b || x.own > own[b] {
			return fmt.Errorf("%w: branch %d owns %d blocks, %d name it", ErrIntegrity, b, x.own, own[b])
		}
		if x.waits {
			pending++
		}
		if x.group == none {
			continue
		}
		g := &s.groups[x.group]
		if int(x.pos) >= len(g.members) || g.members[x.pos] != h || s.meta[g.slot].group != x.group {
			return fmt.Errorf("%w: branch %d is not in the group of slot %d", ErrIntegrity, b, g.slot)
		}
		if x.pos > 0 && s.needed(h, g.members[(x.pos-1)/2]) {
			return fmt.Errorf("%w: group of slot %d out of order at %d", ErrIntegrity, g.slot, x.pos)
		}
	}
	waiting := 0
	for key, h := range s.pending {
		for ; h != none; h = s.holders[h].next {
			if waiting++; waiting > len(s.holders) || s.holders[h].pending != key {
				return fmt.Errorf("%w: the branches that wait for %s are no list", ErrIntegrity, key.Short())
			}
		}
	}
	if waiting != pending || len(s.byID)+len(s.freeHolders) != len(s.holders) {
		return fmt.Errorf("%w: %d branches wait, %d are listed; %d branches and %d free of %d",
			ErrIntegrity, pending, waiting, len(s.byID), len(s.freeHolders), len(s.holders))
	}
	return nil
}
