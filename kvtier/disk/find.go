package disk

import (
	"fmt"

	"github.com/weir-dev/weir/kvtier"
)

// Place is where a block lies. It may have gone when it is read: Reader finds out.
type Place struct {
	Segment string // file name in the store's folder
	Slot    int64  // in the segment
	Gen     uint64
}

// Has tells whether a block is there, without counting it as a use.
func (s *Store) Has(pool string, block int64, key kvtier.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pool(pool, block)
	if p == nil {
		return false
	}
	_, ok := p.slots.Find(key)
	return ok
}

// Find returns the place of each key; the zero Place for one that is not there. It counts
// as a use of those that are.
func (s *Store) Find(pool string, block int64, keys []kvtier.Key) []Place {
	out := make([]Place, len(keys))
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pool(pool, block)
	if p == nil || s.closed {
		return out
	}
	now := s.cfg.Now()
	for i := range keys {
		id, ok := p.slots.Find(keys[i])
		if !ok {
			continue
		}
		p.touch(id, now)
		n, at := p.at(id)
		_, gen := p.slots.State(id)
		out[i] = Place{Segment: p.file(n), Slot: at, Gen: gen}
		s.count.hits++
	}
	return out
}

// listSlots is how many slots List looks at while others wait.
const listSlots = 1 << 14

// List appends the blocks on the disk to dst, most at most, those for which want is
// true. want is asked while nothing on the disk changes; nil means all. What comes or
// goes meanwhile may be missing or listed.
func (s *Store) List(dst []kvtier.Block, most int, want func(kvtier.Key) bool) []kvtier.Block {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := len(dst)
	for i := 0; i < len(s.pools); i++ {
		p := s.pools[i]
		for id := 0; id < p.total(); id++ {
			if len(dst)-from == most {
				return dst
			}
			if b, ok := p.slots.Get(kvtier.SlotID(id)); ok && (want == nil || want(b.Key)) {
				dst = append(dst, b)
			}
			if id%listSlots == listSlots-1 {
				s.mu.Unlock()
				s.mu.Lock()
			}
		}
	}
	return dst
}

// Parent returns what is known of a block, in whichever pool it is.
func (s *Store) Parent(key kvtier.Key) (kvtier.Block, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pools {
		if id, ok := p.slots.Find(key); ok {
			return p.slots.Get(id)
		}
	}
	return kvtier.Block{}, false
}

// Check reads a block that a reader found corrupt, and drops it if it is. It reports
// whether it was dropped.
func (s *Store) Check(pool string, block int64, key kvtier.Key) (bool, error) {
	s.io.Lock()
	defer s.io.Unlock()
	p := s.pool(pool, block)
	if p == nil || s.closed {
		return false, nil
	}
	id, ok := p.slots.Find(key)
	if !ok {
		return false, nil
	}
	n, i := p.at(id)
	_, gen := p.slots.State(id)
	if _, err := p.segs[n].read(p.layout, i, key, gen, make([]byte, p.layout.block)); err == nil {
		return false, nil
	}
	s.mu.Lock()
	s.count.corrupt++
	s.mu.Unlock()
	return true, s.discard(p, id)
}

// discard takes a block out of the table and overwrites it. io is held.
func (s *Store) discard(p *pool, id kvtier.SlotID) error {
	s.mu.Lock()
	_, err := p.slots.Remove(id)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err = p.wipe(id); err != nil {
		err = fmt.Errorf("overwriting a block in %s: %w", p.segOf(id).path, err)
		s.fail(err)
	}
	s.mu.Lock()
	p.free++
	s.mu.Unlock()
	return err
}

// Clear removes every block and file.
func (s *Store) Clear() (dropped []Dropped, err error) {
	s.io.Lock()
	defer s.io.Unlock()
	for _, p := range s.pools {
		for n, seg := range p.segs {
			if seg == nil {
				continue
			}
			d, err := s.release(p, n)
			dropped = append(dropped, d...)
			if err != nil {
				return dropped, fmt.Errorf("disk: clearing %s: %w", s.cfg.Dir, err)
			}
		}
	}
	s.mu.Lock()
	s.full = false
	s.mu.Unlock()
	return dropped, nil
}

// CheckIntegrity compares the tables with the files' headers.
func (s *Store) CheckIntegrity() error {
	s.io.Lock()
	defer s.io.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var used int64
	for _, p := range s.pools {
		if err := p.slots.CheckIntegrity(); err != nil {
			return fmt.Errorf("pool %q: %w", p.name, err)
		}
		used += p.fileBytes()
		free := 0
		for id := range kvtier.SlotID(p.total()) {
			n, i := p.at(id)
			if p.segs[n] == nil {
				continue
			}
			b, sealed := p.slots.Get(id)
			if !sealed {
				free++
			}
			head := make([]byte, slotBytes)
			if _, err := p.segs[n].f.ReadAt(head, headerBytes+i*slotBytes); err != nil {
				return err
			}
			if h, ok := decodeSlot(head); !ok || sealed != (h.state == stSealed) || sealed && h.block != b {
				return fmt.Errorf("%w: pool %q slot %d: the header says %+v, the table %+v", kvtier.ErrIntegrity, p.name, id, h.block, b)
			}
		}
		if free != p.free {
			return fmt.Errorf("%w: pool %q has %d free slots, %d are counted", kvtier.ErrIntegrity, p.name, free, p.free)
		}
	}
	if used != s.used || used > s.cfg.Bytes {
		return fmt.Errorf("%w: %d bytes in files, %d are counted, %d are configured", kvtier.ErrIntegrity, used, s.used, s.cfg.Bytes)
	}
	return nil
}
