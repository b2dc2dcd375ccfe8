package kvtier

// none stands for no slot, no entry of a table, no position in a heap.
const none = -1

// absentParent is a block that is not resident and has resident children, or the
// root of chains (a spec, which is never resident). The children of one parent have
// the same index.
type absentParent struct {
	key   Key
	root  bool
	child int32 // the first of them
	index int32 // of the children
}

// rootKey tells a spec's root from a block: a client may name one as the other.
type rootKey struct {
	key  Key
	root bool
}

// parents keeps the keys of parents that have no slot. An entry lives as long as it
// has children.
type parents struct {
	at   map[rootKey]int32
	list []absentParent
	free []int32
}

// find returns the entry of a block that is not resident.
func (p *parents) find(key *Key) (int32, bool) {
	n, ok := p.at[rootKey{key: *key}]
	return n, ok
}

// add returns the entry of a parent, new when there is none.
func (p *parents) add(key Key, root bool, index int32) int32 {
	k := rootKey{key, root}
	if n, ok := p.at[k]; ok {
		return n
	}
	e := absentParent{key: key, root: root, child: none, index: index}
	n := int32(len(p.list))
	if last := len(p.free) - 1; last >= 0 {
		n, p.free = p.free[last], p.free[:last]
		p.list[n] = e
	} else {
		p.list = append(p.list, e)
	}
	p.at[k] = n
	return n
}

func (p *parents) remove(n int32) {
	delete(p.at, rootKey{p.list[n].key, p.list[n].root})
	p.list[n] = absentParent{}
	p.free = append(p.free, n)
}

// parentSlot is the slot of a block's parent, none when it is not resident.
func (s *Slots) parentSlot(id int32) int32 { return max(none, s.meta[id].parent) }

// parentKey is the key of a block's parent.
func (s *Slots) parentKey(id SlotID) Key {
	if p := s.meta[id].parent; p >= 0 {
		return s.meta[p].key
	}
	return s.parents.list[^s.meta[id].parent].key
}

// head is where the list of a parent's children begins. ref is a slot, or ^n for
// entry n of the parents without one.
func (s *Slots) head(ref int32) *int32 {
	if ref >= 0 {
		return &s.meta[ref].child
	}
	return &s.parents.list[^ref].child
}

// attach makes block id a child of its parent and returns the parent's slot, or
// none.
func (s *Slots) attach(id int32, b *Block) int32 {
	ref := int32(none)
	if b.Index > 0 {
		if p, ok := s.index.find(s.meta, &b.Parent); ok {
			ref = int32(p)
		}
	}
	if ref == none {
		ref = ^s.parents.add(b.Parent, b.Index == 0, int32(b.Index))
	}
	head := s.head(ref)
	m := &s.meta[id]
	m.parent, m.prev, m.next = ref, none, *head
	if *head != none {
		s.meta[*head].prev = id
	}
	*head = id
	return max(none, ref)
}

// detach takes block id from its parent's children.
func (s *Slots) detach(id int32) {
	m := &s.meta[id]
	if m.prev != none {
		s.meta[m.prev].next = m.next
	} else {
		*s.head(m.parent) = m.next
	}
	if m.next != none {
		s.meta[m.next].prev = m.prev
	}
	if ref := m.parent; ref < 0 && s.parents.list[^ref].child == none {
		s.parents.remove(^ref)
	}
}

// welcome gives a block that is placed the resident children that it has already.
func (s *Slots) welcome(id int32) {
	m := &s.meta[id]
	m.child = none
	n, ok := s.parents.find(&m.key)
	if !ok {
		return
	}
	m.child = s.parents.list[n].child
	for c := m.child; c != none; c = s.meta[c].next {
		s.meta[c].parent = id
	}
	s.parents.remove(n)
}

// orphan keeps the children of a block that goes before them.
func (s *Slots) orphan(id int32) {
	m := &s.meta[id]
	if m.child == none {
		return
	}
	n := s.parents.add(m.key, false, m.index+1)
	s.parents.list[n].child = m.child
	for c := m.child; c != none; c = s.meta[c].next {
		s.meta[c].parent = ^n
	}
	m.child = none
}

// children counts the resident children of a block.
func (s *Slots) children(id SlotID) (n int) {
	for c := s.meta[id].child; c != none; c = s.meta[c].next {
		n++
	}
	return n
}

// Ancestor returns the key of the block at a position of the chain that ends with
// tail. It walks from tail upwards; false when a block of the way is not resident.
func (s *Slots) Ancestor(tail Key, index int) (Key, bool) {
	id, ok := s.index.find(s.meta, &tail)
	if !ok || index < 0 || index > int(s.meta[id].index) {
		return Key{}, false
	}
	x := int32(id)
	for x != none && int(s.meta[x].index) > index {
		x = s.parentSlot(x)
	}
	if x == none {
		return Key{}, false
	}
	return s.meta[x].key, true
}
