package hostmem

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/retain"
)

// pool is the daemon's side of one pool file: the table of its slots and its
// clients. The daemon's loop owns it.
type pool struct {
	*arena
	slots   *kvtier.Slots
	writers [maxWriters]*writer
	waiting []waiting // reservations that found no room, first come first served
	out     outbox
	count   counters
	left    leftover
	graves  *graves        // of the daemon
	keeper  *retain.Keeper // likewise
	number  int            // of the pool in it
	spill   *spill         // of the daemon; nil without a disk
	// mapped is held while the writer to disk, which alone of the daemon's goroutines
	// looks at the mapping outside of the loop, does so, and to unmap.
	mapped sync.Mutex
}

// writer is a client as the daemon knows it. conn is nil while it is not
// connected; it still holds its slots until its lock is free.
type writer struct {
	id    string
	nonce nonce
	no    int
	conn  *conn
	guest bool // it joined an existing pool, and does not keep it from giving way
}

type counters struct {
	evictions, duplicates, reclaimed, corrupt, refused uint64
}

func (p *pool) Leased(id kvtier.SlotID) bool   { return p.leases(uint32(id)).Load() != 0 }
func (p *pool) LastUse(id kvtier.SlotID) int64 { return p.slot(uint32(id)).use().Load() }

// cacheSlots is how many unused slots one client may hold back: few enough that
// all clients together never hold half of the pool.
func (p *pool) cacheSlots() int { return int(min(32, p.arena.slots/(2*maxWriters))) }

// reserve gives n slots to a writer, evicting as needed, and up to extra more. It
// returns false, and gives none, if n cannot be had.
func (p *pool) reserve(no, n, extra int, now int64) ([]slotRef, bool) {
	for p.slots.Counts().Free < n {
		if !p.evict(now, ruleRoom) {
			return nil, false
		}
	}
	for p.slots.Counts().Free < n+extra && p.evict(now, ruleRoom) {
	}
	given := p.slots.Reserve(uint32(no), n+extra, nil)
	refs := make([]slotRef, len(given))
	for i, r := range given {
		s := p.slot(uint32(r.Slot))
		s.known().Store(0)
		s.writer().Store(uint32(no + 1))
		s.word().Store(word(r.Gen, stReserved))
		p.left.remove(r.Slot)
		refs[i] = slotRef{uint64(r.Slot), r.Gen}
	}
	return refs, true
}

// evict frees one slot, by that rule, or by that of the block's class. A block that a
// reader leases in the same moment stays: the state goes to evicting first, and the
// lease bits are read after that.
func (p *pool) evict(now int64, rule string) bool {
	for range 64 { // each further try means that a reader came between; then the next victim is another
		id, ok := p.slots.Victim(p, now)
		if !ok {
			return false
		}
		s := p.slot(uint32(id))
		_, gen := p.slots.State(id)
		if s.word().CompareAndSwap(word(gen, stSealed), word(gen, stEvicting)) && p.leases(uint32(id)).Load() != 0 {
			s.word().Store(word(gen, stSealed))
			continue
		}
		class, _ := p.slots.ClassOf(id)
		b, _ := p.slots.Get(id)
		if rule == ruleRoom {
			rule = p.ruleOf(class)
			p.keeper.Evicted(now, p.number, b, class)
		}
		p.remove(id, rule)
		p.count.evictions++
		return true
	}
	return false
}

// remove takes a sealed block out of table, index and memory, and remembers why.
func (p *pool) remove(id kvtier.SlotID, rule string) {
	_, gen := p.slots.State(id)
	b, err := p.slots.Remove(id)
	if err != nil {
		return // not sealed: there is nothing to take out
	}
	p.arena.remove(&b.Key, uint32(id))
	p.blank(uint32(id), gen)
	p.remember(id, b, rule)
	p.out.add(kvtier.Event{Kind: p.leaves(b, rule), Block: b})
}

// blank marks a slot free in shared memory. The generation stays: the next
// reservation raises it.
func (p *pool) blank(id uint32, gen uint64) {
	s := p.slot(id)
	s.word().Store(word(gen, stFree))
	s.known().Store(0)
	s.writer().Store(0)
}

// abandon frees a reserved slot.
func (p *pool) abandon(no int, r kvtier.Reservation) error {
	if err := p.slots.Abandon(uint32(no), r); err != nil {
		return err
	}
	p.blank(uint32(r.Slot), r.Gen)
	p.returned(r)
	return nil
}

// adopt takes a slot that its writer has sealed into the table. With verify the
// data is checked against the checksum first: the writer did not live to say
// that it had finished. It reports whether the slot is no longer reserved.
func (p *pool) adopt(no int, r kvtier.Reservation, verify bool) bool {
	s := p.slot(uint32(r.Slot))
	w := s.word().Load()
	if w != word(r.Gen, stSealed) {
		return false
	}
	b, ok := s.block(w)
	if !ok {
		return false
	}
	if verify && checksum(p.bytes(uint32(r.Slot))) != s.crc().Load() {
		p.count.corrupt++
		p.remember(r.Slot, b, RuleWriter)
		p.discard(no, r, b)
		return true
	}
	if p.secondCopy(r.Slot, &b.Key) {
		p.count.duplicates++
		p.discard(no, r, b)
		return true
	}
	kept, duplicate, err := p.slots.Seal(uint32(no), r, b, s.use().Load())
	switch {
	case errors.Is(err, kvtier.ErrNotReserved):
		return false
	case err != nil:
		p.count.corrupt++
		p.discard(no, r, b)
	case duplicate: // the index had lost the first
		p.count.duplicates++
		p.discard(no, r, b)
		p.arena.insert(&b.Key, uint32(kept))
	default:
		s.known().Store(1)
		delete(p.left.asked, r.Slot)
		p.arena.insert(&b.Key, uint32(r.Slot))
		p.spill.look()
		p.keeper.Sealed(time.Now().UnixNano(), p.number, b.Key)
		p.out.add(kvtier.Event{Kind: kvtier.EventStored, Block: b})
	}
	return true
}

// secondCopy tells whether readers find the key in another slot. The index decides
// which of two equal blocks stays, not the order of the notices: the one in the
// index may be leased. Its own notice is on the way.
func (p *pool) secondCopy(id kvtier.SlotID, key *kvtier.Key) bool {
	found, w, ok := p.find(key)
	if !ok || found == uint32(id) {
		return false
	}
	state, gen := p.slots.State(kvtier.SlotID(found))
	return state != kvtier.SlotFree && gen == wordGen(w)
}

// discard frees a slot that was sealed but is not kept. A reader that holds it
// finds its generation gone.
func (p *pool) discard(no int, r kvtier.Reservation, b kvtier.Block) {
	if p.abandon(no, r) == nil {
		p.arena.remove(&b.Key, uint32(r.Slot))
	}
}

// settle brings the table up to date with what a client did while its notices
// did not arrive: sealed slots are adopted, and those that it no longer holds
// are freed. held is nil when that is not known.
func (p *pool) settle(no int, verify bool, held []slotRef) {
	for _, r := range p.slots.ReservedBy(uint32(no)) {
		if p.adopt(no, r, verify) || held == nil {
			continue
		}
		if !slices.Contains(held, slotRef{uint64(r.Slot), r.Gen}) {
			_ = p.abandon(no, r) // it is reserved: ReservedBy just said so
		}
	}
}

// reclaim ends a writer that is dead: the caller holds its lock, or has seen its
// successor hold it.
func (p *pool) reclaim(no int) {
	p.settle(no, true, []slotRef{})
	bit := uint64(1) << no
	for i := uint32(0); int64(i) < p.arena.slots; i++ {
		if l := p.leases(i); l.Load()&bit != 0 {
			l.And(^bit)
		}
	}
	if w := p.writers[no]; w != nil {
		p.waiting = slices.DeleteFunc(p.waiting, func(q waiting) bool { return q.conn.writer == w })
		w.conn = nil // what still arrives on its connection is not obeyed
	}
	p.writers[no] = nil
	p.writerUsed(no).Store(0)
	p.count.reclaimed++
}

// corrupt checks blocks whose readers saw a wrong checksum and removes those that
// are wrong indeed, leased or not: their readers check the generation anyway.
func (p *pool) corrupt(refs []slotRef) {
	for _, r := range refs {
		id := kvtier.SlotID(r[0])
		if state, gen := p.slots.State(id); r[0] >= uint64(p.arena.slots) || state != kvtier.SlotSealed || gen != r[1] {
			continue
		}
		if checksum(p.bytes(uint32(id))) != p.slot(uint32(id)).crc().Load() {
			p.count.corrupt++
			p.remove(id, RuleChecksum)
		}
	}
}

// clear evicts blocks that are not leased, at most that many, and returns how many
// there were.
func (p *pool) clear(now int64, most int) (n int) {
	for n < most && p.evict(now, RuleCleared) {
		n++
	}
	if p.slots.Counts().Sealed == 0 && n > 0 {
		p.out.pending = append(p.out.pending[:0], kvtier.Event{Kind: kvtier.EventCleared})
	}
	return n
}
