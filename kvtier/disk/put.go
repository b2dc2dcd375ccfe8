package disk

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weir-dev/weir/kvtier"
)

// Item is a block to be written.
type Item struct {
	Pool  string
	Block kvtier.Block
	Data  []byte // the pool's block size; not kept
	CRC   uint32 // Checksum of Data
	Use   int64  // last use, Unix nanoseconds
	// Fresh is asked in the moment before the write, when no Erase runs: false drops the
	// block, whose original is gone. nil means yes.
	Fresh func() bool
}

// Dropped is a block that left the disk.
type Dropped struct {
	Pool string
	kvtier.Block
}

// Put writes a block; one that is there already is only touched. It returns the blocks
// that gave way. ErrOff, ErrBudget and ErrStale say that it was not written. It blocks
// as long as the disk does.
func (s *Store) Put(it Item) ([]Dropped, error) {
	s.io.Lock()
	defer s.io.Unlock()
	p, err := s.poolFor(it.Pool, int64(len(it.Data)))
	if err != nil {
		return nil, err
	}
	if s.touchIfThere(p, it.Block.Key, it.Use) {
		return nil, nil
	}
	if it.Fresh != nil && !it.Fresh() {
		return nil, ErrStale
	}
	r, dropped, err := s.room(p, it.Use)
	if err != nil {
		return dropped, err
	}
	if err := p.write(r, slotHeader{block: it.Block, crc: it.CRC, use: it.Use}, it.Data); err != nil {
		_ = p.wipe(r.Slot) // if that fails too, the next start does it
		s.mu.Lock()
		p.giveBack(r)
		s.mu.Unlock()
		err = fmt.Errorf("writing %s: %w", p.segOf(r.Slot).path, err)
		s.fail(err)
		return dropped, fmt.Errorf("%w: %w", ErrOff, err)
	}
	s.mu.Lock()
	_, dup, err := p.slots.Seal(0, r, it.Block, it.Use)
	if err == nil && !dup {
		p.setUse(r.Slot, it.Use)
		s.count.writes++
		s.count.written += uint64(len(it.Data))
		s.mu.Unlock()
		return dropped, nil
	}
	p.giveBack(r)
	s.mu.Unlock()
	if werr := p.wipe(r.Slot); werr != nil {
		s.fail(werr)
	}
	return dropped, err
}

func (s *Store) touchIfThere(p *pool, key kvtier.Key, use int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := p.slots.Find(key)
	if ok {
		p.touch(id, use)
	}
	return ok
}

// poolFor finds or makes a pool; io is held.
func (s *Store) poolFor(name string, block int64) (*pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, ErrClosed
	case s.off != nil:
		return nil, fmt.Errorf("%w: %w", ErrOff, s.off)
	}
	if p := s.pool(name, block); p != nil {
		return p, nil
	}
	if name == "" || len(name) > maxPoolName || block <= 0 {
		return nil, fmt.Errorf("%w: pool name of %d bytes, blocks of %d", ErrSegment, len(name), block)
	}
	l := fitLayout(block, min(s.cfg.SegmentBytes, s.cfg.Bytes))
	if l.file > s.cfg.Bytes {
		return nil, fmt.Errorf("%w: a segment with one block of %d bytes takes %d, %d are configured", ErrBudget, block, l.file, s.cfg.Bytes)
	}
	if len(s.pools) == maxPools {
		return nil, fmt.Errorf("%w: %d pools lie in %s, no more are taken; clear it", ErrBudget, maxPools, s.cfg.Dir)
	}
	p := newPool(name, l, s.cfg.Bytes).open()
	s.enlist(p)
	s.pools = append(s.pools, p)
	return p, nil
}

// pool finds a pool; io or mu is held.
func (s *Store) pool(name string, block int64) *pool {
	for _, p := range s.pools {
		if p.name == name && p.layout.block == block {
			return p
		}
	}
	return nil
}

// room finds a slot for a block that was used at use: a free one, one in a new segment,
// one in a segment that another pool has not used for longer, or the pool's own next
// victim. io is held.
func (s *Store) room(p *pool, use int64) (r kvtier.Reservation, dropped []Dropped, err error) {
	if p.free > 0 {
		return s.take(p, nil)
	}
	number, canGrow := p.absent()
	victim, limit, ok := s.victim(p)
	if canGrow && !s.full {
		if !ok {
			limit = use
		}
		if dropped, err = s.makeRoom(p, limit); err != nil {
			return r, dropped, err
		}
		if s.used+p.layout.file <= s.cfg.Bytes {
			if done, err := s.grow(p, number); err != nil || done {
				if err != nil {
					return r, dropped, err
				}
				return s.take(p, dropped)
			}
		}
	}
	if !ok {
		return r, dropped, fmt.Errorf("%w: pool %q finds no room in %s", ErrBudget, p.name, s.cfg.Dir)
	}
	s.mu.Lock()
	b, err := p.slots.Evict(victim)
	if err == nil {
		p.free++
		s.count.replaced++
		dropped = append(dropped, Dropped{Pool: p.name, Block: b})
	}
	s.mu.Unlock()
	if err != nil {
		return r, dropped, err
	}
	return s.take(p, dropped)
}

// victim is the pool's block to go next, with its last use.
func (s *Store) victim(p *pool) (id kvtier.SlotID, use int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok = p.slots.Victim(p, s.cfg.Now()); ok {
		use = p.use[id]
	}
	return id, use, ok
}

func (s *Store) take(p *pool, dropped []Dropped) (kvtier.Reservation, []Dropped, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := p.reserve()
	if !ok {
		return r, dropped, fmt.Errorf("%w: pool %q has no free slot", ErrBudget, p.name)
	}
	return r, dropped, nil
}

// grow adds a segment; false when the filesystem is full and the pool goes on with what
// there is. io is held.
func (s *Store) grow(p *pool, number int) (bool, error) {
	seg, err := p.makeSegment(s.cfg.Dir, number)
	if errors.Is(err, unix.ENOSPC) && s.used > 0 {
		s.mu.Lock()
		s.full = true
		s.mu.Unlock()
		s.cfg.Logger.Warn("the KV disk grows no more: its filesystem is full", "dir", s.cfg.Dir, "bytes", s.used, "configured", s.cfg.Bytes)
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("making a segment of %d bytes in %s: %w", p.layout.file, s.cfg.Dir, err)
		s.fail(err)
		return false, fmt.Errorf("%w: %w", ErrOff, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.at(kvtier.SlotID(int64(number) * p.layout.slots)) // makes the list long enough
	p.segs[number] = seg
	p.free += int(p.layout.slots)
	s.used += p.layout.file
	return true, nil
}

// makeRoom releases segments of other pools whose blocks were all used before limit,
// until one of p fits. io is held.
func (s *Store) makeRoom(p *pool, limit int64) (dropped []Dropped, err error) {
	for s.used+p.layout.file > s.cfg.Bytes {
		q, n := s.coldest(p, limit)
		if q == nil {
			return dropped, nil
		}
		d, err := s.release(q, n)
		dropped = append(dropped, d...)
		if err != nil {
			err = fmt.Errorf("removing a segment of %s: %w", s.cfg.Dir, err)
			s.fail(err)
			return dropped, fmt.Errorf("%w: %w", ErrOff, err)
		}
	}
	return dropped, nil
}

// coldest is the segment outside p whose newest use is the oldest, and before limit.
func (s *Store) coldest(p *pool, limit int64) (best *pool, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.pools {
		if q == p {
			continue
		}
		for n, seg := range q.segs {
			if seg != nil && seg.newest < limit {
				best, number, limit = q, n, seg.newest
			}
		}
	}
	return best, number
}

// release drops a segment with its blocks and deletes its file. io is held.
func (s *Store) release(p *pool, number int) (dropped []Dropped, err error) {
	dropped, seg := s.detach(p, number)
	return dropped, seg.remove()
}

// detach takes a segment with its blocks out of the tables. io is held.
func (s *Store) detach(p *pool, number int) (dropped []Dropped, seg *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p.layout.slots {
		id := kvtier.SlotID(int64(number)*p.layout.slots + i)
		b, err := p.slots.Remove(id)
		if err != nil { // it was free
			p.free--
			continue
		}
		s.count.replaced++
		dropped = append(dropped, Dropped{Pool: p.name, Block: b})
	}
	seg = p.segs[number]
	p.segs[number] = nil
	s.used -= p.layout.file
	return dropped, seg
}
