package kvtier

// leafHeap orders the leaves that no waiting or running branch ends with: the dead
// ones first, then by last use, oldest first, deeper ones first. Positions are kept
// in the slots, so that a block which gets a child leaves the heap in O(log n). What
// is equal is ordered by slot, so that the choice never depends on history.
type leafHeap struct {
	ids []SlotID
}

func (h *leafHeap) less(meta []slotMeta, a, b SlotID) bool {
	x, y := &meta[a], &meta[b]
	if d := x.flags & flagDead; d != y.flags&flagDead {
		return d != 0
	}
	if x.use != y.use {
		return x.use < y.use
	}
	if x.index != y.index {
		return x.index > y.index
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
	meta[id].leaf = none
	if i < last {
		h.fix(meta, i)
	}
}

// fix moves the block at position i after its rank changed.
func (h *leafHeap) fix(meta []slotMeta, i int) {
	if !h.down(meta, i) {
		h.up(meta, i)
	}
}

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

// walk looks through a heap of n entries in order without changing it: visit gets
// positions, best first, until it returns false. queue is scratch space. The cost
// is O(log v) for each of v visits.
func walk(n int, less func(i, j int32) bool, queue []int32, visit func(i int32) bool) []int32 {
	q := queue[:0]
	if n > 0 {
		q = append(q, 0)
	}
	for len(q) > 0 {
		i := q[0]
		last := len(q) - 1
		q[0] = q[last]
		q = sink(q[:last], less)
		if !visit(i) {
			break
		}
		for c := 2*i + 1; c <= 2*i+2 && int(c) < n; c++ {
			q = rise(append(q, c), less)
		}
	}
	return q[:0]
}

func rise(q []int32, less func(i, j int32) bool) []int32 {
	for i := len(q) - 1; i > 0; {
		p := (i - 1) / 2
		if !less(q[i], q[p]) {
			break
		}
		q[i], q[p] = q[p], q[i]
		i = p
	}
	return q
}

func sink(q []int32, less func(i, j int32) bool) []int32 {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(q) {
			return q
		}
		if c+1 < len(q) && less(q[c+1], q[c]) {
			c++
		}
		if !less(q[c], q[i]) {
			return q
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
}
