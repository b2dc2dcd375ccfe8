package hostmem

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// PoolStats is what one pool holds. Free + Reserved + Sealed = Total.
type PoolStats struct {
	Pool       string
	Epoch      uint64
	BlockBytes int64
	FileBytes  int64
	Total      int // slots
	Free       int
	Reserved   int
	Sealed     int
	Leased     int // sealed slots that somebody reads
	Clients    int
	Waiting    int // reservations that wait for room

	// Since this daemon started.
	Evictions  uint64
	Duplicates uint64 // blocks sealed twice
	Reclaimed  uint64 // clients that ended
	Corrupt    uint64 // blocks removed because their bytes or place in the tree were wrong
	Refused    uint64 // times that no slot could be had at once
	Dropped    uint64 // events that nobody read in time
}

// Stats returns one entry per pool.
func (d *Daemon) Stats() ([]PoolStats, error) {
	var out []PoolStats
	err := d.call(func() {
		for _, p := range d.pools {
			out = append(out, p.stats())
		}
	})
	return out, err
}

func (p *pool) stats() PoolStats {
	c := p.slots.Counts()
	s := PoolStats{
		Pool: p.pool, Epoch: p.out.epoch, BlockBytes: p.block, FileBytes: p.file,
		Total: c.Total, Free: c.Free, Reserved: c.Reserved, Sealed: c.Sealed, Waiting: len(p.waiting),
		Evictions: p.count.evictions, Duplicates: p.count.duplicates, Reclaimed: p.count.reclaimed,
		Corrupt: p.count.corrupt, Refused: p.count.refused, Dropped: p.out.dropped,
	}
	for _, w := range p.writers {
		if w != nil {
			s.Clients++
		}
	}
	for i := range uint32(p.arena.slots) {
		if p.leases(i).Load() != 0 {
			s.Leased++
		}
	}
	return s
}

// Events delivers what changed, in order per pool. If nobody reads it, batches
// are dropped and the next one has Gap set. The channel is never closed.
func (d *Daemon) Events() <-chan Batch { return d.events }

// scanSlots is how many slots a look at all of them takes in one step, between which
// the daemon does other work: less than a millisecond.
const scanSlots = 1 << 14

// Snapshot returns everything that is sealed, for a reader that starts or that
// met a gap. Batches with Seq greater than the snapshot's follow it; they may
// repeat what it already holds, and applying them in order gives the right state.
// It is taken in steps: what changes in between is in those batches.
func (d *Daemon) Snapshot() ([]Snapshot, error) {
	var out []Snapshot
	var pools []*pool
	err := d.call(func() {
		pools = slices.Clone(d.pools)
		for _, p := range pools {
			out = append(out, Snapshot{
				Pool: p.pool, Epoch: p.out.epoch, Seq: p.out.seq,
				Blocks: make([]kvtier.Block, 0, p.slots.Counts().Sealed),
			})
		}
	})
	for i, p := range pools {
		seen := make(map[kvtier.Key]bool, cap(out[i].Blocks))
		for at := 0; at < int(p.arena.slots) && err == nil; at += scanSlots {
			err = d.call(func() {
				for id := at; id < at+scanSlots; id++ {
					// One that went and came back in another slot is met twice.
					if b, ok := p.slots.Get(kvtier.SlotID(id)); ok && !seen[b.Key] {
						seen[b.Key] = true
						out[i].Blocks = append(out[i].Blocks, b)
					}
				}
			})
		}
		sortBlocks(out[i].Blocks)
	}
	return out, err
}

// clearBlocks is how many blocks one step of Clear evicts.
const clearBlocks = 512

// Clear evicts every block that nobody leases, in all pools, and returns how many
// there were. It empties the disk too. It goes in steps; what is stored meanwhile may
// stay.
func (d *Daemon) Clear() (evicted int, err error) {
	var pools []*pool
	err = d.call(func() { pools = slices.Clone(d.pools) })
	for _, p := range pools {
		total := 0
		for more := true; more && err == nil; {
			err = d.call(func() {
				if more = slices.Contains(d.pools, p); !more {
					return // its file went meanwhile
				}
				n := p.clear(time.Now().UnixNano(), clearBlocks)
				total += n
				more = n == clearBlocks && total < int(p.arena.slots)
			})
		}
		evicted += total
	}
	return evicted, errors.Join(err, d.clearDisk())
}

// CheckIntegrity compares tables, headers and indexes of all pools. It is exact
// while no client writes.
func (d *Daemon) CheckIntegrity() error {
	var errs []error
	err := d.call(func() {
		for _, p := range d.pools {
			errs = append(errs, p.check())
		}
	})
	return errors.Join(append(errs, err)...)
}

// forget drops the file of a pool.
func (d *Daemon) forget(p *pool) error {
	skip := p.slots.Counts().Sealed - d.graves.most // the ring would forget them at once
	d.graves.whole = d.graves.whole && skip <= 0
	for id := range p.arena.slots {
		b, ok := p.slots.Get(kvtier.SlotID(id))
		if !ok {
			continue
		}
		if skip--; skip < 0 {
			p.remember(kvtier.SlotID(id), b, RulePool)
		}
	}
	d.graves.leave(p)
	d.part(p)
	d.keeper.Remove(p.number)
	p.mapped.Lock()
	defer p.mapped.Unlock()
	d.pools = slices.DeleteFunc(d.pools, func(q *pool) bool { return q == p })
	return d.store.drop(p.arena)
}
