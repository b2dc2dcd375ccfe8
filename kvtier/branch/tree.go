package branch

// node is a point of the radix tree where contexts part or end. The path from
// the root to it spells the items that all contexts below share.
//
//	root --[system, user 1]-- a --[answer, user 2]-- line of branch "main"
//	                           \-[user 1b]---------- line of branch "b-2"
type node struct {
	parent *node
	edge   []Item // items between the parent and here; empty at the root only
	depth  int    // items from the root to here
	size   int    // their size
	kids   map[[16]byte]*node
	lines  *line // that end here, newest first
	live   int   // live lines that end here or below

	// The children in order of their last touch, newest first, so that the branches
	// used last are found without looking at all.
	newest, oldest *node
	prev, next     *node
	touched        uint64 // at least the largest seq below
}

// line is one context in the tree: the live one of a branch or a superseded one.
type line struct {
	branch     *state
	end        *node
	live       bool
	seq        uint64 // order of last use
	prev, next *line  // among the lines that end at the same node
}

// state is what is kept of a branch.
type state struct {
	name       string
	line       *line   // the live context
	past       []*line // superseded contexts, oldest first
	first      int     // size of its first context
	sub        bool    // began as a sub-agent
	hinted     bool    // its last turn asked for a summary that replaces the context
	prev, next *state  // among all branches by last use

	// Among the branches whose first item behind the system prompt is head.
	head               [16]byte
	headed             bool
	headPrev, headNext *state
}

// walk follows items from the root. It returns the node at or above whose end the
// last match lies, and how many items matched. The match ends inside n's edge
// when matched < n.depth.
func (f *Forest) walk(items []Item) (n *node, matched int) {
	n = f.root
	for matched < len(items) {
		kid := n.kids[items[matched].Digest]
		if kid == nil {
			return n, matched
		}
		k := 1
		for k < len(kid.edge) && matched+k < len(items) && kid.edge[k].Digest == items[matched+k].Digest {
			k++
		}
		matched += k
		n = kid
		if k < len(kid.edge) {
			return n, matched
		}
	}
	return n, matched
}

// insert gives the node whose path is items, making it where needed.
func (f *Forest) insert(items []Item) *node {
	n, m := f.walk(items)
	if m < n.depth {
		n = f.split(n, len(n.edge)-(n.depth-m))
	}
	if m == len(items) {
		return n
	}
	leaf := &node{parent: n, edge: append([]Item(nil), items[m:]...), depth: len(items), size: n.size + sizeOf(items[m:])}
	f.items += len(leaf.edge)
	n.attach(leaf)
	return leaf
}

// split puts a node k items into n's edge and returns it.
func (f *Forest) split(n *node, k int) *node {
	p := n.parent
	mid := &node{parent: p, edge: n.edge[:k:k], depth: p.depth + k, size: p.size + sizeOf(n.edge[:k]), touched: n.touched, live: n.live}
	// mid takes n's place among p's children.
	mid.prev, mid.next = n.prev, n.next
	if mid.prev != nil {
		mid.prev.next = mid
	} else {
		p.newest = mid
	}
	if mid.next != nil {
		mid.next.prev = mid
	} else {
		p.oldest = mid
	}
	p.kids[mid.edge[0].Digest] = mid
	n.parent, n.edge, n.prev, n.next = mid, n.edge[k:], nil, nil
	mid.attach(n)
	return mid
}

func (n *node) attach(kid *node) {
	if n.kids == nil {
		n.kids = map[[16]byte]*node{}
	}
	n.kids[kid.edge[0].Digest] = kid
	n.pushFront(kid)
}

func (n *node) pushFront(kid *node) {
	kid.prev, kid.next = nil, n.newest
	if n.newest != nil {
		n.newest.prev = kid
	} else {
		n.oldest = kid
	}
	n.newest = kid
}

func (n *node) unlink(kid *node) {
	if kid.prev != nil {
		kid.prev.next = kid.next
	} else {
		n.newest = kid.next
	}
	if kid.next != nil {
		kid.next.prev = kid.prev
	} else {
		n.oldest = kid.prev
	}
	kid.prev, kid.next = nil, nil
}

// touch marks the path to n as used at seq.
func (n *node) touch(seq uint64) {
	for ; n != nil; n = n.parent {
		n.touched = seq
		if p := n.parent; p != nil && p.newest != n {
			p.unlink(n)
			p.pushFront(n)
		}
	}
}

// prune removes n where nothing ends at or below it, and joins a node with its
// only child.
func (f *Forest) prune(n *node) {
	for n.parent != nil && n.lines == nil && len(n.kids) == 0 {
		p := n.parent
		delete(p.kids, n.edge[0].Digest)
		p.unlink(n)
		f.items -= len(n.edge)
		n = p
	}
	if n.parent == nil || n.lines != nil || len(n.kids) != 1 {
		return
	}
	kid, p := n.newest, n.parent
	kid.edge = append(append(make([]Item, 0, len(n.edge)+len(kid.edge)), n.edge...), kid.edge...)
	kid.parent, kid.prev, kid.next, kid.touched = p, n.prev, n.next, n.touched
	if kid.prev != nil {
		kid.prev.next = kid
	} else {
		p.newest = kid
	}
	if kid.next != nil {
		kid.next.prev = kid
	} else {
		p.oldest = kid
	}
	p.kids[kid.edge[0].Digest] = kid
}

func (l *line) put(n *node, seq uint64) {
	l.end, l.seq = n, seq
	l.prev, l.next = nil, n.lines
	if n.lines != nil {
		n.lines.prev = l
	}
	n.lines = l
	n.touch(seq)
}

// count adds d live lines to the path to n.
func (n *node) count(d int) {
	for ; n != nil; n = n.parent {
		n.live += d
	}
}

// alone is how many items, and of what size, at the end of the path to n and behind
// the first k are in one live context only.
func (n *node) alone(k int) (items, size int) {
	for m := n; m.depth > k && m.live == 1; m = m.parent {
		part := m.edge[max(0, len(m.edge)-(m.depth-k)):]
		items += len(part)
		size += sizeOf(part)
	}
	return items, size
}

// take removes l from its node, which the caller prunes.
func (l *line) take() *node {
	n := l.end
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		n.lines = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.prev, l.next, l.end = nil, nil, nil
	return n
}

// tail is the items of l behind the first k.
func (l *line) tail(k int) []Item {
	out := make([]Item, l.end.depth-k)
	for n := l.end; n.depth > k; n = n.parent {
		part := n.edge[max(0, len(n.edge)-(n.depth-k)):]
		copy(out[n.depth-k-len(part):], part)
	}
	return out
}

// item is the k-th item of l, from 0; nil when l is not that long.
func (l *line) item(k int) *Item {
	if k >= l.end.depth {
		return nil
	}
	n := l.end
	for n.parent.depth > k {
		n = n.parent
	}
	return &n.edge[k-n.parent.depth]
}

// above says whether n lies on the path to m.
func (n *node) above(m *node) bool {
	for m != nil && m.depth > n.depth {
		m = m.parent
	}
	return m == n
}

// sizeAt is the size of the first k items on the path to n, k <= n.depth.
func (n *node) sizeAt(k int) int {
	for n.parent != nil && n.parent.depth >= k {
		n = n.parent
	}
	return n.size - sizeOf(n.edge[len(n.edge)-(n.depth-k):])
}

func sizeOf(items []Item) int {
	sum := 0
	for i := range items {
		sum += items[i].size()
	}
	return sum
}
