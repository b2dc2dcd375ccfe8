package kvtier

// holder is one branch as the table knows it.
type holder struct {
	id    BranchID
	class Class
	waits bool    // pending is set
	score float64 // the higher, the earlier it goes within its class
	group int32   // none: nothing of its context is resident
	pos   int32   // in the group
	own   int32   // resident blocks that it was the first to hold
	// pending is the tail that was announced and is not sealed yet. Branches that
	// wait for one key are a list.
	pending    Key
	prev, next int32
}

// group is the branches whose context ends, as far as it is resident, with one
// block: their frontier. Only frontiers are leaves that a branch needs. When that
// block goes, the whole group moves to the parent.
type group struct {
	slot    int32
	heap    int32   // position among the held leaves; none when the block is no leaf or ranks below waiting
	members []int32 // a heap: the one that protects the block most is first
}

// needed reports whether branch a protects a block more than b does.
func (s *Slots) needed(a, b int32) bool {
	x, y := &s.holders[a], &s.holders[b]
	if x.class != y.class {
		return x.class > y.class
	}
	if x.score != y.score {
		return x.score < y.score
	}
	return x.id < y.id
}

func (s *Slots) top(g int32) *holder { return &s.holders[s.groups[g].members[0]] }

func (s *Slots) swapMembers(m []int32, i, j int) {
	m[i], m[j] = m[j], m[i]
	s.holders[m[i]].pos, s.holders[m[j]].pos = int32(i), int32(j)
}

// fixMember moves the branch at position i of a group after its rank changed.
func (s *Slots) fixMember(m []int32, i int) {
	for i > 0 && s.needed(m[i], m[(i-1)/2]) {
		s.swapMembers(m, i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		c := 2*i + 1
		if c >= len(m) {
			return
		}
		if c+1 < len(m) && s.needed(m[c+1], m[c]) {
			c++
		}
		if !s.needed(m[c], m[i]) {
			return
		}
		s.swapMembers(m, i, c)
		i = c
	}
}

// enter puts branch h into group g.
func (s *Slots) enter(g, h int32) {
	m := append(s.groups[g].members, h)
	s.groups[g].members = m
	s.holders[h].group, s.holders[h].pos = g, int32(len(m)-1)
	s.fixMember(m, len(m)-1)
}

// exit takes branch h out of its group. It returns the block that it ended with;
// an empty group is gone.
func (s *Slots) exit(h int32) (slot int32) {
	g, i := s.holders[h].group, int(s.holders[h].pos)
	if g == none {
		return none
	}
	s.holders[h].group = none
	m := s.groups[g].members
	last := len(m) - 1
	s.swapMembers(m, i, last)
	s.groups[g].members = m[:last]
	slot = s.groups[g].slot
	if last == 0 {
		s.dissolve(g)
		s.meta[slot].group = none
	} else if i < last {
		s.fixMember(m[:last], i)
	}
	return slot
}

// dissolve ends a group without members.
func (s *Slots) dissolve(g int32) {
	s.unrank(g)
	s.groups[g].members = s.groups[g].members[:0]
	s.freeGroups = append(s.freeGroups, g)
}

// groupAt returns the group of the branches that end with block id, new when there
// is none.
func (s *Slots) groupAt(id int32) int32 {
	if g := s.meta[id].group; g != none {
		return g
	}
	g := int32(len(s.groups))
	if last := len(s.freeGroups) - 1; last >= 0 {
		g, s.freeGroups = s.freeGroups[last], s.freeGroups[:last]
	} else {
		s.groups = append(s.groups, group{})
	}
	s.groups[g].slot, s.groups[g].heap = id, none
	s.meta[id].group = g
	return g
}

// retreat moves the branches that ended with a block that is gone to its parent.
// Two groups become one by moving the smaller, so that a branch moves O(log n)
// times at most.
func (s *Slots) retreat(g, parent int32) {
	s.unrank(g)
	if parent == none {
		for _, h := range s.groups[g].members {
			s.holders[h].group = none
		}
		s.dissolve(g)
		return
	}
	to := s.meta[parent].group
	if to == none {
		s.meta[parent].group, s.groups[g].slot = g, parent
		return
	}
	if len(s.groups[to].members) < len(s.groups[g].members) {
		g, to = to, g
		s.meta[parent].group, s.groups[to].slot = to, parent
	}
	for _, h := range s.groups[g].members {
		s.enter(to, h)
	}
	s.dissolve(g)
}

// sooner reports whether the leaf of group a goes before that of b.
func (s *Slots) sooner(a, b int32) bool {
	x, y := s.top(a), s.top(b)
	if x.class != y.class {
		return x.class < y.class
	}
	if x.score != y.score {
		return x.score > y.score
	}
	i, j := s.groups[a].slot, s.groups[b].slot
	if d, e := s.meta[i].index, s.meta[j].index; d != e {
		return d > e
	}
	return i < j
}

func (s *Slots) swapHeld(i, j int) {
	h := s.held
	h[i], h[j] = h[j], h[i]
	s.groups[h[i]].heap, s.groups[h[j]].heap = int32(i), int32(j)
}

func (s *Slots) fixHeld(i int) {
	for i > 0 && s.sooner(s.held[i], s.held[(i-1)/2]) {
		s.swapHeld(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		c := 2*i + 1
		if c >= len(s.held) {
			return
		}
		if c+1 < len(s.held) && s.sooner(s.held[c+1], s.held[c]) {
			c++
		}
		if !s.sooner(s.held[c], s.held[i]) {
			return
		}
		s.swapHeld(i, c)
		i = c
	}
}

// rank puts a group among the held leaves, or to its place there.
func (s *Slots) rank(g int32) {
	if s.groups[g].heap == none {
		s.held = append(s.held, g)
		s.groups[g].heap = int32(len(s.held) - 1)
	}
	s.fixHeld(int(s.groups[g].heap))
}

// unrank takes a group from the held leaves. Nothing of it is compared: it may have
// no members any more.
func (s *Slots) unrank(g int32) {
	i := int(s.groups[g].heap)
	if i == none {
		return
	}
	last := len(s.held) - 1
	s.swapHeld(i, last)
	s.held = s.held[:last]
	s.groups[g].heap = none
	if i < last {
		s.fixHeld(i)
	}
}
