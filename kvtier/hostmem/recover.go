package hostmem

import (
	"fmt"

	"github.com/weir-dev/weir/kvtier"
)

// newPool puts a daemon's table over a pool file. For a file that was in use, the
// table is rebuilt from the slot headers: sealed blocks are kept, reservations
// stay with their writers, and only the lock of a writer says whether it lives.
// Clients read and seal while this runs.
func (d *Daemon) newPool(a *arena) *pool {
	p := &pool{arena: a, graves: d.graves, spill: d.spill, left: newLeftover(a.slots)}
	p.out = outbox{pool: a.pool, epoch: a.epoch().Add(1)}
	a.pressure().Store(0)
	var known uint64
	for no := range p.writers {
		id, n, ok := a.loadWriter(no)
		if !ok {
			a.writerUsed(no).Store(0)
			continue
		}
		p.writers[no] = &writer{id: id, nonce: n, no: no}
		known |= 1 << no
	}
	var refused []kvtier.SlotID
	p.slots, refused = kvtier.Restore(int(a.slots), func(id kvtier.SlotID) kvtier.Saved {
		if l := a.leases(uint32(id)); l.Load()&^known != 0 {
			l.And(known)
		}
		return p.saved(uint32(id))
	})
	for _, id := range refused {
		_, gen := p.slots.State(id)
		p.blank(uint32(id), gen)
		p.count.duplicates++
	}
	p.unburied()
	a.repair()
	d.enlist(p)
	return p
}

// saved reads one slot header after a restart.
func (p *pool) saved(id uint32) kvtier.Saved {
	s := p.slot(id)
	w := s.word().Load()
	gen := wordGen(w)
	if wordState(w) == stEvicting { // the daemon died between the two steps of evict
		if p.leases(id).Load() != 0 {
			w = word(gen, stSealed)
			s.word().Store(w)
		} else {
			w = word(gen, stFree)
		}
	}
	switch wordState(w) {
	case stSealed:
		b, ok := s.block(w)
		if !ok || s.known().Load() == 0 && checksum(p.bytes(id)) != s.crc().Load() {
			p.count.corrupt++
			break
		}
		s.known().Store(1)
		return kvtier.Saved{State: kvtier.SlotSealed, Gen: gen, Block: b, Use: s.use().Load()}
	case stReserved:
		if no := s.writer().Load(); no >= 1 && no <= maxWriters && p.writers[no-1] != nil {
			return kvtier.Saved{State: kvtier.SlotReserved, Gen: gen, Writer: no - 1}
		}
	}
	if w != word(gen, stFree) || s.word().Load() != w {
		p.blank(id, gen)
	}
	return kvtier.Saved{State: kvtier.SlotFree, Gen: gen}
}

// check compares the table with the shared memory: every sealed block stands in
// its header and is found by readers. It is exact when no client is active.
func (p *pool) check() error {
	if err := p.slots.CheckIntegrity(); err != nil {
		return fmt.Errorf("pool %q: %w", p.pool, err)
	}
	for i := range uint32(p.arena.slots) {
		state, gen := p.slots.State(kvtier.SlotID(i))
		w := p.slot(i).word().Load()
		if wordGen(w) != gen {
			return fmt.Errorf("%w: pool %q slot %d has generation %d, the table %d", kvtier.ErrIntegrity, p.pool, i, wordGen(w), gen)
		}
		switch b, _ := p.slots.Get(kvtier.SlotID(i)); {
		case state == kvtier.SlotFree && wordState(w) != stFree,
			state == kvtier.SlotSealed && wordState(w) != stSealed,
			state == kvtier.SlotReserved && wordState(w) != stReserved && wordState(w) != stSealed:
			return fmt.Errorf("%w: pool %q slot %d has state %d, the table %d", kvtier.ErrIntegrity, p.pool, i, wordState(w), state)
		case state == kvtier.SlotSealed:
			if found, _, ok := p.find(&b.Key); !ok || found != i {
				return fmt.Errorf("%w: pool %q slot %d is not found under %s", kvtier.ErrIntegrity, p.pool, i, b.Key.Short())
			}
		}
	}
	return nil
}
