package hostmem

import (
	"math/bits"

	"github.com/weir-dev/weir/kvtier"
)

// leftover knows which slots may hold bytes of blocks that nobody remembers, so that an
// erase overwrites them all: those that a writer gave back, whatever it wrote; those of a
// second copy; those that graves forgot; and those that an earlier daemon left. What was
// evicted lately is not among them, because graves name it. The daemon's loop owns it.
type leftover struct {
	free []uint64 // one bit per slot; set only while the slot is free
	// asked are reserved slots, with their generations, of which an erase could not tell
	// what they hold. They are overwritten when they come back unfilled.
	asked map[kvtier.SlotID]uint64
}

func newLeftover(slots int64) leftover {
	return leftover{free: make([]uint64, (slots+63)/64), asked: map[kvtier.SlotID]uint64{}}
}

func (l *leftover) add(id kvtier.SlotID)    { l.free[id/64] |= 1 << (id % 64) }
func (l *leftover) remove(id kvtier.SlotID) { l.free[id/64] &^= 1 << (id % 64) }

// returned takes a slot that its writer gives back.
func (p *pool) returned(r kvtier.Reservation) {
	gen, asked := p.left.asked[r.Slot]
	delete(p.left.asked, r.Slot)
	if asked && gen == r.Gen {
		clear(p.bytes(uint32(r.Slot)))
		return
	}
	p.left.add(r.Slot)
}

// askBack has the slots that are reserved now overwritten when they come back unfilled.
func (p *pool) askBack() {
	for no, w := range p.writers {
		if w == nil {
			continue
		}
		for _, r := range p.slots.ReservedBy(uint32(no)) {
			p.left.asked[r.Slot] = r.Gen
		}
	}
}

// wipeLeft overwrites what was left in free slots, from those of word at on. It returns
// the word at which the next step goes on, -1 when there is nothing more.
func (p *pool) wipeLeft(at int, s *step) int {
	for ; at < len(p.left.free); at++ {
		for p.left.free[at] != 0 {
			if !s.take(p) {
				return at
			}
			id := kvtier.SlotID(64*at + bits.TrailingZeros64(p.left.free[at]))
			clear(p.bytes(uint32(id)))
			p.left.remove(id)
		}
	}
	return -1
}

// unburied remembers the blocks whose bytes an earlier daemon left in free slots, as far
// as their headers still say which they are.
func (p *pool) unburied() {
	for i := range uint32(p.arena.slots) {
		id := kvtier.SlotID(i)
		state, gen := p.slots.State(id)
		if state != kvtier.SlotFree || gen == 0 {
			continue
		}
		b, ok := p.slot(i).block(p.slot(i).word().Load())
		if _, found := p.slots.Find(b.Key); !ok || found {
			p.left.add(id)
			continue
		}
		p.graves.add(grave{key: b.Key, parent: b.Parent, gen: gen, pool: p, slot: i, rule: RuleForgotten})
	}
}

// abandoned leaves the bytes of a block that is not remembered any more to its pool.
func (e *grave) abandoned() {
	if e.pool == nil {
		return
	}
	if state, gen := e.pool.slots.State(kvtier.SlotID(e.slot)); state == kvtier.SlotFree && gen == e.gen {
		e.pool.left.add(kvtier.SlotID(e.slot))
	}
}
