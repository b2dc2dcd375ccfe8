package kvtier

import "fmt"

// CheckIntegrity recomputes everything that the table keeps incrementally and
// compares: allocated + free = total (invariant 3 of the design), the index holds
// exactly the sealed keys, children are counted right, and the heap holds exactly
// the leaves in order. It is O(n) and for tests, debug builds and `doctor`.
func (s *Slots) CheckIntegrity() error {
	if err := s.checkStates(); err != nil {
		return err
	}
	if err := s.checkTree(); err != nil {
		return err
	}
	return s.checkLeaves()
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
	children := map[Key]int32{}
	for id := range s.meta {
		m := &s.meta[id]
		if m.state != SlotSealed || m.index == 0 {
			continue
		}
		children[m.parent]++
		if p, ok := s.index.find(s.meta, &m.parent); ok && s.meta[p].index+1 != m.index {
			return fmt.Errorf("%w: slot %d has index %d, its parent %d", ErrIntegrity, id, m.index, s.meta[p].index)
		}
	}
	for id := range s.meta {
		m := &s.meta[id]
		if m.state == SlotSealed && m.children != children[m.key] {
			return fmt.Errorf("%w: slot %d counts %d children and has %d", ErrIntegrity, id, m.children, children[m.key])
		}
		if m.state == SlotSealed {
			delete(children, m.key)
		}
	}
	if len(children) != len(s.orphans) {
		return fmt.Errorf("%w: %d absent parents counted, %d exist", ErrIntegrity, len(s.orphans), len(children))
	}
	for key, n := range children {
		if s.orphans[key].count != n {
			return fmt.Errorf("%w: absent parent %s counts %d children and has %d", ErrIntegrity, key.Short(), s.orphans[key].count, n)
		}
	}
	return nil
}

func (s *Slots) checkLeaves() error {
	leaves := 0
	for id := range s.meta {
		m := &s.meta[id]
		isLeaf := m.state == SlotSealed && m.children == 0
		if isLeaf != (m.leaf != noLeaf) {
			return fmt.Errorf("%w: slot %d leaf %v, in the heap %v", ErrIntegrity, id, isLeaf, m.leaf != noLeaf)
		}
		if isLeaf {
			leaves++
			if int(m.leaf) >= len(s.leaves.ids) || s.leaves.ids[m.leaf] != SlotID(id) {
				return fmt.Errorf("%w: slot %d is not at its place %d in the heap", ErrIntegrity, id, m.leaf)
			}
		}
	}
	if leaves != len(s.leaves.ids) {
		return fmt.Errorf("%w: %d leaves, %d in the heap", ErrIntegrity, leaves, len(s.leaves.ids))
	}
	for i := 1; i < len(s.leaves.ids); i++ {
		if s.leaves.less(s.meta, s.leaves.ids[i], s.leaves.ids[(i-1)/2]) {
			return fmt.Errorf("%w: heap out of order at %d", ErrIntegrity, i)
		}
	}
	return nil
}
