package kvtier

// keyIndex finds slots by key: open addressing with linear probing over slot
// numbers, load at most one half, keys stored in the slots. Eight to sixteen
// bytes per slot, no pointers for the garbage collector to follow.
type keyIndex struct {
	buckets []uint32 // slot + 1, 0 when empty
	mask    uint64
}

func newKeyIndex(slots int) keyIndex {
	n := 8
	for n < 2*slots {
		n *= 2
	}
	return keyIndex{buckets: make([]uint32, n), mask: uint64(n - 1)}
}

// find returns the slot of key.
func (x *keyIndex) find(meta []slotMeta, key *Key) (SlotID, bool) {
	for i := key.hash() & x.mask; x.buckets[i] != 0; i = (i + 1) & x.mask {
		if id := x.buckets[i] - 1; meta[id].key == *key {
			return SlotID(id), true
		}
	}
	return 0, false
}

// insert adds a slot whose key is not in the index.
func (x *keyIndex) insert(meta []slotMeta, id SlotID) {
	i := meta[id].key.hash() & x.mask
	for x.buckets[i] != 0 {
		i = (i + 1) & x.mask
	}
	x.buckets[i] = uint32(id) + 1
}

// remove takes a slot out and closes the gap by moving later entries of the run
// back, so that no probe ends too early.
func (x *keyIndex) remove(meta []slotMeta, id SlotID) bool {
	i := meta[id].key.hash() & x.mask
	for x.buckets[i] != uint32(id)+1 {
		if x.buckets[i] == 0 {
			return false
		}
		i = (i + 1) & x.mask
	}
	hole := i
	for k := (hole + 1) & x.mask; x.buckets[k] != 0; k = (k + 1) & x.mask {
		home := meta[x.buckets[k]-1].key.hash() & x.mask
		if (k-home)&x.mask >= (k-hole)&x.mask {
			x.buckets[hole] = x.buckets[k]
			hole = k
		}
	}
	x.buckets[hole] = 0
	return true
}
