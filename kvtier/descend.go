package kvtier

// Below appends the slots of all resident blocks that follow a block, whether it is
// resident or not, to dst: parents before their children. Its time grows with what it
// finds, not with the table.
func (s *Slots) Below(key Key, dst []SlotID) []SlotID {
	first := int32(none)
	if id, ok := s.index.find(s.meta, &key); ok {
		first = s.meta[id].child
	} else if n, ok := s.parents.find(&key); ok {
		first = s.parents.list[n].child
	}
	at := len(dst)
	for c := first; c != none; c = s.meta[c].next {
		dst = append(dst, SlotID(c))
	}
	for ; at < len(dst); at++ { // indexes grow along children: there is no circle
		for c := s.meta[dst[at]].child; c != none; c = s.meta[c].next {
			dst = append(dst, SlotID(c))
		}
	}
	return dst
}
