package kvtier

// Before reports whether block a goes before block b when both could go, as the order
// stands: by class, then by score or last use. Blocks that are not in the table go
// first.
func (s *Slots) Before(a, b SlotID) bool {
	ca, okA := s.ClassOf(a)
	cb, okB := s.ClassOf(b)
	switch {
	case !okA || !okB:
		return !okA && okB
	case ca != cb:
		return ca < cb
	case ca >= ClassWaiting:
		return s.top(s.meta[a].group).score > s.top(s.meta[b].group).score
	}
	return s.meta[a].use < s.meta[b].use
}
