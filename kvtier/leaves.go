package kvtier

// leafHeap orders the evictable blocks (sealed, without resident children) by
// last use, oldest first. Positions are kept in the slots, so that a block which
// gets a child leaves the heap in O(log n). Equal times are ordered by slot, so
// that the choice never depends on history.
type leafHeap struct {
	ids []SlotID
}

func (h *leafHeap) less(meta []slotMeta, a, b SlotID) bool {
	if meta[a].use != meta[b].use {
		return meta[a].use < meta[b].use
	}
	return a < b
}

func (h *leafHeap) push(meta []slotMeta, id SlotID) {
	h.ids = append(h.ids, id)
	meta[id].leaf = int32(len(h.ids) - 1)
	h.up(meta, len(h.ids)-1)
}

// remove takes the block at position i out.
func (h *leafHeap) remove(meta []slotMeta, i int) {
	id, last := h.ids[i], len(h.ids)-1
	h.swap(meta, i, last)
	h.ids = h.ids[:last]
	meta[id].leaf = noLeaf
	if i < last && !h.down(meta, i) {
		h.up(meta, i)
	}
}

// later moves the block at position i after its last use grew.
func (h *leafHeap) later(meta []slotMeta, i int) { h.down(meta, i) }

func (h *leafHeap) up(meta []slotMeta, i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !h.less(meta, h.ids[i], h.ids[p]) {
			return
		}
		h.swap(meta, i, p)
		i = p
	}
}

func (h *leafHeap) down(meta []slotMeta, i int) bool {
	start := i
	for {
		c := 2*i + 1
		if c >= len(h.ids) {
			break
		}
		if r := c + 1; r < len(h.ids) && h.less(meta, h.ids[r], h.ids[c]) {
			c = r
		}
		if !h.less(meta, h.ids[c], h.ids[i]) {
			break
		}
		h.swap(meta, i, c)
		i = c
	}
	return i > start
}

func (h *leafHeap) swap(meta []slotMeta, i, j int) {
	h.ids[i], h.ids[j] = h.ids[j], h.ids[i]
	meta[h.ids[i]].leaf, meta[h.ids[j]].leaf = int32(i), int32(j)
}
