package kvtier

import "math/bits"

// keyIndex finds slots by key: open addressing with linear probing over slot
// numbers, load at most three quarters, keys stored in the slots. 5.3 bytes per
// slot, no pointers for the garbage collector to follow.
type keyIndex struct {
	buckets []uint32 // slot + 1, 0 when empty
}

func newKeyIndex(slots int) keyIndex {
	return keyIndex{buckets: make([]uint32, max(8, slots+slots/3+1))}
}

// home is the bucket at which probes for a key begin: its hash, scaled to the number
// of buckets.
func (x *keyIndex) home(key *Key) int {
	h, _ := bits.Mul64(key.hash(), uint64(len(x.buckets)))
	return int(h)
}

func (x *keyIndex) next(i int) int {
	if i++; i < len(x.buckets) {
		return i
	}
	return 0
}

// behind is how many steps bucket i lies behind bucket h.
func (x *keyIndex) behind(i, h int) int {
	if i >= h {
		return i - h
	}
	return i - h + len(x.buckets)
}

// find returns the slot of key.
func (x *keyIndex) find(meta []slotMeta, key *Key) (SlotID, bool) {
	for i := x.home(key); x.buckets[i] != 0; i = x.next(i) {
		if id := x.buckets[i] - 1; meta[id].key == *key {
			return SlotID(id), true
		}
	}
	return 0, false
}

// insert adds a slot whose key is not in the index.
func (x *keyIndex) insert(meta []slotMeta, id SlotID) {
	i := x.home(&meta[id].key)
	for x.buckets[i] != 0 {
		i = x.next(i)
	}
	x.buckets[i] = uint32(id) + 1
}

// remove takes a slot out and closes the gap by moving later entries of the run
// back, so that no probe ends too early.
func (x *keyIndex) remove(meta []slotMeta, id SlotID) bool {
	i := x.home(&meta[id].key)
	for x.buckets[i] != uint32(id)+1 {
		if x.buckets[i] == 0 {
			return false
		}
		i = x.next(i)
	}
	hole := i
	for k := x.next(hole); x.buckets[k] != 0; k = x.next(k) {
		home := x.home(&meta[x.buckets[k]-1].key)
		if x.behind(k, home) >= x.behind(k, hole) {
			x.buckets[hole] = x.buckets[k]
			hole = k
		}
	}
	x.buckets[hole] = 0
	return true
}
