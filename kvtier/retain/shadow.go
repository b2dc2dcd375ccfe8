package retain

// Shadow is what plain LRU would hold now, at the granularity of branches: the
// branches by last use, each with the blocks that are its own, of which the least
// recently used loses its last ones first. Blocks that several branches share are
// their first holder's. It costs O(1) per use, amortised.
type Shadow struct {
	capacity, held int
	most           int
	m              map[string]*shade
	root           shade // ring: root.next is the latest
}

// shade is what LRU holds of one branch, or of a context that a branch had before
// (branch ""), which LRU does not know to be of no use.
type shade struct {
	prev, next *shade
	branch     string
	blocks     int
}

// NewShadow returns a shadow of a cache of capacity blocks that remembers up to
// branches branches, 0 for 65,536.
func NewShadow(capacity, branches int) *Shadow {
	if branches <= 0 {
		branches = 65536
	}
	s := &Shadow{capacity: max(0, capacity), most: branches, m: map[string]*shade{}}
	s.root.prev, s.root.next = &s.root, &s.root
	return s
}

// Touch says that branch was used: its context is now blocks long, of which own
// are its own. When these are fewer than before, what is past them stays where it
// was in the order, as plain LRU has it.
func (s *Shadow) Touch(branch string, blocks, own int) {
	own = max(0, min(own, blocks))
	e := s.m[branch]
	if e == nil {
		e = &shade{branch: branch}
		s.m[branch] = e
	} else if old := e.blocks - own; old > 0 {
		g := &shade{blocks: old, prev: e.prev, next: e}
		g.prev.next, e.prev = g, g
		e.blocks -= old
		unlink(e)
	} else {
		unlink(e)
	}
	e.prev, e.next = &s.root, s.root.next
	e.prev.next, e.next.prev = e, e
	s.held += own - e.blocks
	e.blocks = own
	s.trim()
}

// Resident is how many of the branch's own blocks LRU would hold, from the first.
func (s *Shadow) Resident(branch string) int {
	if e := s.m[branch]; e != nil {
		return e.blocks
	}
	return 0
}

// Resize changes the capacity, in blocks.
func (s *Shadow) Resize(capacity int) {
	s.capacity = max(0, capacity)
	s.trim()
}

func (s *Shadow) trim() {
	for s.held > s.capacity || len(s.m) > s.most {
		e := s.root.prev
		if e == &s.root {
			return
		}
		n := e.blocks
		if len(s.m) <= s.most {
			n = min(n, s.held-s.capacity)
		}
		e.blocks -= n
		s.held -= n
		if e.blocks == 0 {
			unlink(e)
			if e.branch != "" {
				delete(s.m, e.branch)
			}
		}
	}
}

func unlink(e *shade) { e.prev.next, e.next.prev = e.next, e.prev }
