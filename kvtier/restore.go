package kvtier

import "slices"

// Saved is what is known of one slot from elsewhere, for instance from the
// headers in shared memory after the table's owner was killed.
type Saved struct {
	State  SlotState
	Gen    uint64
	Writer uint32 // when reserved
	Block  Block  // when sealed
	Use    int64  // when sealed
}

// Restore rebuilds a table of n slots. It asks saved for each slot in order and
// returns the sealed slots that it had to free: a second slot with the same key,
// or a block that cannot stand in the tree.
func Restore(n int, saved func(SlotID) Saved) (s *Slots, refused []SlotID) {
	n = max(0, min(n, MaxSlots))
	s = newSlots(n)
	for i := range n {
		id := SlotID(i)
		v := saved(id)
		m := &s.meta[id]
		m.gen = v.Gen
		switch v.State {
		case SlotReserved:
			m.state = SlotReserved
			s.reserved[id] = v.Writer
		case SlotSealed:
			if _, dup := s.index.find(s.meta, &v.Block.Key); dup || s.fits(v.Block) != nil {
				refused = append(refused, id)
				break
			}
			s.place(id, v.Block, v.Use)
		case SlotFree:
		}
		if m.state == SlotFree {
			s.free = append(s.free, id)
		}
	}
	slices.Reverse(s.free)
	s.compactParents()
	return s, refused
}
