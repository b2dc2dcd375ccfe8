package kvtier

import "slices"

// compactParents gives back what the table of absent parents took while blocks were
// restored: in slots at random half of them come before their parents.
func (s *Slots) compactParents() {
	used := make([]int32, 0, len(s.parents.at))
	for _, n := range s.parents.at {
		used = append(used, n)
	}
	slices.Sort(used)
	old := s.parents.list
	s.parents = parents{at: make(map[rootKey]int32, len(used)), list: make([]absentParent, 0, len(used))}
	for i, n := range used {
		e := old[n]
		s.parents.list = append(s.parents.list, e)
		s.parents.at[rootKey{e.key, e.root}] = int32(i)
		for c := e.child; c != none; c = s.meta[c].next {
			s.meta[c].parent = ^int32(i)
		}
	}
}
