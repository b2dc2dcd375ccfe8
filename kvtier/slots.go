package kvtier

import (
	"fmt"
	"slices"
)

// SlotID numbers the slots of one pool from 0.
type SlotID uint32

// MaxSlots bounds a table: a slot number must fit an int32.
const MaxSlots = 1<<31 - 2

// SlotState is where a slot stands.
//
//	Free ──Reserve──► Reserved ──Seal──► Sealed
//	 ▲                   │                 │
//	 └──Abandon──────────┘◄───Remove, Evict┘
type SlotState uint8

// The states of a slot.
const (
	SlotFree SlotState = iota
	SlotReserved
	SlotSealed
)

// slotMeta is one slot: 88 bytes without pointers. Slots and positions are none
// where there is none.
type slotMeta struct {
	key    Key
	gen    uint64 // grows by one with each reservation
	use    int64  // last use as far as this table knows, in the caller's time
	parent int32  // its slot, or ^n for entry n of the parents that have none
	index  int32
	child  int32 // the first resident block whose parent this is
	next   int32 // of the parent's children
	prev   int32
	leaf   int32    // position in the leaf heap
	group  int32    // the branches whose context ends here
	first  BranchID // the first branch whose context went through it
	state  SlotState
	origin Origin
	flags  uint8
	seen   uint16 // by the survey
}

// Slots is the table of one pool's slots and its retention order: leaves before
// their parents; dead blocks, then idle ones by last use, then those of waiting
// branches by their score. Without branches that is leaf-first LRU. It is a plain
// data structure; the caller serialises calls.
//
// A branch stands in the table as its frontier: the deepest resident block of its
// context. The blocks before it need no entry, because they are no leaves as long
// as it is there.
//
// Memory: 88 bytes per slot, 5.3 for the index, 4 each for the free list and
// the leaf heap, and some 150 bytes per branch.
type Slots struct {
	meta     []slotMeta
	index    keyIndex
	free     []SlotID // a stack: the last one is given out next
	reserved map[SlotID]uint32
	parents  parents
	leaves   leafHeap
	sealed   int

	byID        map[BranchID]int32
	holders     []holder
	freeHolders []int32
	groups      []group
	freeGroups  []int32
	held        []int32       // groups whose block is a leaf, as a heap: first the one that goes first
	pending     map[Key]int32 // first branch that waits for a block to be sealed
	queue       []int32       // scratch space of walk
	freshFor    int64
	survey      survey
}

// Counts are the slots by state; Free + Reserved + Sealed = Total always.
type Counts struct {
	Total, Free, Reserved, Sealed int
}

// Reservation is one slot given to a writer. The generation tells it from every
// earlier and later use of the slot.
type Reservation struct {
	Slot SlotID
	Gen  uint64
}

// NewSlots returns a table of n free slots, which are given out in order.
func NewSlots(n int) *Slots {
	n = max(0, min(n, MaxSlots))
	s := newSlots(n)
	for i := n - 1; i >= 0; i-- {
		s.free = append(s.free, SlotID(i))
	}
	return s
}

func newSlots(n int) *Slots {
	s := &Slots{
		meta: make([]slotMeta, n), index: newKeyIndex(n), free: make([]SlotID, 0, n),
		leaves: leafHeap{ids: make([]SlotID, 0, n)}, reserved: map[SlotID]uint32{},
		parents: parents{at: map[rootKey]int32{}}, byID: map[BranchID]int32{}, pending: map[Key]int32{},
	}
	for i := range s.meta {
		m := &s.meta[i]
		m.parent, m.child, m.next, m.prev, m.leaf, m.group = none, none, none, none, none, none
	}
	return s
}

// Counts returns the slots by state in O(1).
func (s *Slots) Counts() Counts {
	return Counts{Total: len(s.meta), Free: len(s.free), Reserved: len(s.reserved), Sealed: s.sealed}
}

// Reserve gives up to n free slots to writer, appended to dst. It does not evict.
func (s *Slots) Reserve(writer uint32, n int, dst []Reservation) []Reservation {
	for ; n > 0 && len(s.free) > 0; n-- {
		id := s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		m := &s.meta[id]
		m.gen++
		m.state = SlotReserved
		s.reserved[id] = writer
		dst = append(dst, Reservation{Slot: id, Gen: m.gen})
	}
	return dst
}

// holds checks that writer has reserved r.
func (s *Slots) holds(writer uint32, r Reservation) error {
	if int(r.Slot) >= len(s.meta) {
		return fmt.Errorf("%w: slot %d of %d", ErrNotReserved, r.Slot, len(s.meta))
	}
	if m := &s.meta[r.Slot]; m.state != SlotReserved || m.gen != r.Gen || s.reserved[r.Slot] != writer {
		return fmt.Errorf("%w: slot %d generation %d writer %d", ErrNotReserved, r.Slot, r.Gen, writer)
	}
	return nil
}

// Seal makes a reserved slot a block that may be found and, later, evicted. use
// is the time of its last use. If the key is resident already, Seal returns that
// slot and true, and r stays reserved: the caller abandons it.
func (s *Slots) Seal(writer uint32, r Reservation, b Block, use int64) (existing SlotID, duplicate bool, err error) {
	if err := s.holds(writer, r); err != nil {
		return 0, false, err
	}
	if old, ok := s.index.find(s.meta, &b.Key); ok {
		return old, true, nil
	}
	if err := s.fits(b); err != nil {
		return 0, false, err
	}
	delete(s.reserved, r.Slot)
	s.place(r.Slot, b, use)
	return r.Slot, false, nil
}

// fits checks that b can stand in the tree: along parents the index strictly
// falls, so a chain has an end and no cycle can escape eviction.
func (s *Slots) fits(b Block) error {
	switch {
	case b.Key.IsZero():
		return fmt.Errorf("%w: no key", ErrBadBlock)
	case b.Index < 0 || b.Index >= MaxSlots:
		return fmt.Errorf("%w: %s has index %d", ErrBadBlock, b.Key.Short(), b.Index)
	case b.Key == b.Parent:
		return fmt.Errorf("%w: %s is its own parent", ErrBadBlock, b.Key.Short())
	}
	if n, ok := s.parents.find(&b.Key); ok && int(s.parents.list[n].index) != b.Index+1 {
		return fmt.Errorf("%w: %s has index %d, its resident children %d", ErrBadBlock, b.Key.Short(), b.Index, s.parents.list[n].index)
	}
	if b.Index == 0 {
		return nil
	}
	if p, ok := s.index.find(s.meta, &b.Parent); ok {
		if int(s.meta[p].index) != b.Index-1 {
			return fmt.Errorf("%w: %s has index %d, its parent %d", ErrBadBlock, b.Key.Short(), b.Index, s.meta[p].index)
		}
	} else if n, ok := s.parents.find(&b.Parent); ok && int(s.parents.list[n].index) != b.Index {
		return fmt.Errorf("%w: %s has index %d, its siblings %d", ErrBadBlock, b.Key.Short(), b.Index, s.parents.list[n].index)
	}
	return nil
}

// place puts a block that fits into slot id and links it into the tree.
func (s *Slots) place(id SlotID, b Block, use int64) {
	m, x := &s.meta[id], int32(id)
	m.key, m.index, m.origin = b.Key, int32(b.Index), b.Origin
	m.state, m.use = SlotSealed, use
	m.first, m.flags, m.seen = 0, 0, 0
	s.welcome(x)
	s.index.insert(s.meta, id)
	s.sealed++
	if p := s.attach(x, &b); p != none {
		s.unleaf(p)
	}
	s.inherit(x)
	s.settle(x)
	s.arrived(x)
}

// Abandon frees a reserved slot that will not be sealed.
func (s *Slots) Abandon(writer uint32, r Reservation) error {
	if err := s.holds(writer, r); err != nil {
		return err
	}
	delete(s.reserved, r.Slot)
	s.meta[r.Slot].state = SlotFree
	s.free = append(s.free, r.Slot)
	return nil
}

// ReservedBy lists what writer holds, in order of slots.
func (s *Slots) ReservedBy(writer uint32) []Reservation {
	var out []Reservation
	for id, w := range s.reserved {
		if w == writer {
			out = append(out, Reservation{Slot: id, Gen: s.meta[id].gen})
		}
	}
	slices.SortFunc(out, func(a, b Reservation) int { return int(a.Slot) - int(b.Slot) })
	return out
}

// Find returns the slot that holds key.
func (s *Slots) Find(key Key) (SlotID, bool) { return s.index.find(s.meta, &key) }

// Get returns the block in slot id.
func (s *Slots) Get(id SlotID) (Block, bool) {
	if int(id) >= len(s.meta) || s.meta[id].state != SlotSealed {
		return Block{}, false
	}
	m := &s.meta[id]
	return Block{Key: m.key, Parent: s.parentKey(id), Index: int(m.index), Origin: m.origin}, true
}

// State returns a slot's state and generation.
func (s *Slots) State(id SlotID) (SlotState, uint64) {
	if int(id) >= len(s.meta) {
		return SlotFree, 0
	}
	return s.meta[id].state, s.meta[id].gen
}

// Blocks appends all sealed blocks to dst in order of slots.
func (s *Slots) Blocks(dst []Block) []Block {
	for id := range s.meta {
		if b, ok := s.Get(SlotID(id)); ok {
			dst = append(dst, b)
		}
	}
	return dst
}
