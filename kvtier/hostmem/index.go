package hostmem

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/weir-dev/weir/kvtier"
)

// The shared index finds a slot by its key without a lock: open addressing with
// linear probing over words of fingerprint << 32 | slot + 1, at a load of at most
// three quarters: then eight buckets, a cache line, hold the most of a probe. Clients insert by
// compare-and-swap into the first empty bucket of the probe sequence, so two
// that seal the same key meet. Only the daemon removes.
//
// The index is a hint. A match always compares the whole key in the slot header,
// so a wrong entry costs a probe, never a wrong block. A missing entry (an insert
// that raced with a removal) is repaired when the daemon takes the block into its
// table.

// maxProbe bounds every probe: at this load, runs this long do not occur unless the
// shared memory was damaged.
const maxProbe = 4096

// bucket is bucket i, which may be up to once around the end.
func (a *arena) bucket(i uint64) *atomic.Uint64 {
	return ptr[atomic.Uint64](a.mem, a.index+int64(a.around(i))*8)
}

func (a *arena) around(i uint64) uint64 {
	if i >= uint64(a.buckets) {
		i -= uint64(a.buckets)
	}
	return i
}

// behind is how many steps bucket i lies behind bucket h.
func (a *arena) behind(i, h uint64) uint64 {
	return a.around(a.around(i) + uint64(a.buckets) - a.around(h))
}

// home is the bucket at which probes for a key begin: the key's first 64 bits, scaled
// to the number of buckets, which need not be a power of two.
func (a *arena) home(k *kvtier.Key) uint64 {
	h, _ := bits.Mul64(binary.NativeEndian.Uint64(k[:8]), uint64(a.buckets))
	return h
}

func print32(k *kvtier.Key) uint64 { return uint64(binary.NativeEndian.Uint32(k[8:12])) }

func entry(k *kvtier.Key, id uint32) uint64 { return print32(k)<<32 | uint64(id+1) }

// probes is how many buckets a probe may look at.
func (a *arena) probes() uint64 { return min(maxProbe, uint64(a.buckets)) }

// find returns the slot that holds key and the state word under which it does.
func (a *arena) find(k *kvtier.Key) (id uint32, w uint64, ok bool) {
	h, fp := a.home(k), print32(k)
	kw := toWords(k)
	for i, n := h, h+a.probes(); i != n; i++ {
		e := a.bucket(i).Load()
		if e == 0 {
			return 0, 0, false
		}
		if e>>32 != fp {
			continue
		}
		if id, w, ok := a.holds(e, &kw); ok {
			return id, w, true
		}
	}
	return 0, 0, false
}

const (
	lookAhead  = 16      // keys whose memory is fetched side by side
	fetchSlots = 1 << 16 // in smaller pools most of it is in the cache
)

// fetch brings the buckets and headers of up to lookAhead keys into the cache. Each
// is a miss in a large pool, and a look-up waits for both; the loads of different
// keys do not wait for one another.
func (a *arena) fetch(keys []kvtier.Key) (touched uint64) {
	if a.slots < fetchSlots {
		return 0
	}
	keys = keys[:min(len(keys), lookAhead)]
	for i := range keys {
		touched ^= a.bucket(a.home(&keys[i])).Load()
	}
	for i := range keys {
		h, fp := a.home(&keys[i]), print32(&keys[i])
		for b := h; b != h+8; b++ {
			e := a.bucket(b).Load()
			if id := uint32(e) - 1; e>>32 == fp && int64(id) < a.slots {
				touched ^= a.slot(id).word().Load()
			}
			if e == 0 || e>>32 == fp {
				break
			}
		}
	}
	return touched
}

// holds tells whether the slot of entry e is sealed under the key.
func (a *arena) holds(e uint64, kw *keyWords) (uint32, uint64, bool) {
	id := uint32(e) - 1
	if int64(id) >= a.slots {
		return 0, 0, false
	}
	s := a.slot(id)
	w := s.word().Load()
	if wordState(w) != stSealed || !s.keyIs(kw) || s.word().Load() != w {
		return 0, 0, false
	}
	return id, w, true
}

// insert enters a sealed slot. It returns the slot that readers will find under
// the key: id, or another one that was there first. ok is false when no bucket
// was free within reach; the block is then not found until the daemon enters it.
func (a *arena) insert(k *kvtier.Key, id uint32) (found uint32, ok bool) {
	e := entry(k, id)
	kw := toWords(k)
	for range 4 { // again only when a removal closed the run behind the insert
		h := a.home(k)
		for i, n := h, h+a.probes(); i != n; i++ {
			b := a.bucket(i)
			v := b.Load()
			if v == 0 && b.CompareAndSwap(0, e) {
				break
			}
			if v == 0 {
				v = b.Load()
			}
			if v == e {
				break
			}
			if v>>32 == e>>32 {
				if other, _, ok := a.holds(v, &kw); ok {
					return other, true
				}
			}
		}
		if other, _, ok := a.find(k); ok {
			return other, true
		}
	}
	return id, false
}

// remove takes entry e out and closes the gap by moving later entries of the run
// back. Only the daemon calls it. Entries are copied before they are cleared, so
// a reader meets an entry twice rather than not at all; only one that stands
// between both places in time can miss it, which costs that reader a match.
func (a *arena) remove(k *kvtier.Key, id uint32) bool {
	e := entry(k, id)
	h := a.home(k)
	for i, n := h, h+a.probes(); i != n; i++ {
		switch a.bucket(i).Load() {
		case e:
			a.closeGap(i)
			return true
		case 0:
			return false
		}
	}
	return false
}

func (a *arena) closeGap(hole uint64) {
	cleared := false
	hole = a.around(hole)
	k := hole
	for range a.probes() {
		k = a.around(k + 1)
		e := a.bucket(k).Load()
		if e == 0 {
			if cleared {
				return
			}
			a.bucket(hole).Store(0)
			cleared = true
			k = a.around(k + uint64(a.buckets) - 1) // an insert may have passed the hole and taken bucket k: look again
			continue
		}
		if id := uint32(e) - 1; int64(id) < a.slots {
			key := a.slot(id).loadKey(32)
			if a.behind(k, a.home(&key)) < a.behind(k, hole) {
				continue // its home lies behind the hole
			}
		}
		if !cleared {
			a.bucket(hole).Store(e)
		} else if !a.bucket(hole).CompareAndSwap(0, e) {
			return // an insert filled the hole: the run has no gap
		}
		hole, cleared = k, false
	}
}

// repair removes every entry that readers could not use, and enters every sealed
// slot that they could not find. The daemon runs it when it opens a file.
func (a *arena) repair() {
	for i := range uint64(a.buckets) {
		// What names no sealed slot goes at once: in an index that damage has filled, no
		// gap could be closed. Runs that this breaks are mended below.
		if e := a.bucket(i).Load(); e != 0 && !a.names(e) {
			a.bucket(i).CompareAndSwap(e, 0)
		}
	}
	for i := uint64(0); i < uint64(a.buckets); i++ {
		for range a.probes() { // closing a gap moves the next entry here
			e := a.bucket(i).Load()
			if e == 0 || a.usable(e, i) {
				break
			}
			a.closeGap(i)
		}
	}
	for id := uint32(0); int64(id) < a.slots; id++ {
		s := a.slot(id)
		if w := s.word().Load(); wordState(w) == stSealed {
			if b, ok := s.block(w); ok {
				a.insert(&b.Key, id)
			}
		}
	}
}

// names tells whether e is the entry of a sealed slot.
func (a *arena) names(e uint64) bool {
	id := uint32(e) - 1
	if int64(id) >= a.slots {
		return false
	}
	s := a.slot(id)
	k := s.loadKey(32)
	return wordState(s.word().Load()) == stSealed && entry(&k, id) == e
}

// usable tells whether bucket i is where a probe for its slot's key ends.
func (a *arena) usable(e, i uint64) bool {
	if !a.names(e) {
		return false
	}
	k := a.slot(uint32(e) - 1).loadKey(32)
	kw := toWords(&k)
	for j, n := a.home(&k), a.home(&k)+a.probes(); j != n; j++ {
		if a.around(j) == a.around(i) {
			return true
		}
		v := a.bucket(j).Load()
		if v == 0 {
			return false
		}
		if _, _, ok := a.holds(v, &kw); ok {
			return false
		}
	}
	return false
}
