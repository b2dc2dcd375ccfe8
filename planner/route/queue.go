package route

// heap is turns in one of their orders, the smallest first. A turn is in at most one
// heap of each order.
type heap struct {
	by int
	ts []*turn
}

// The orders of turns: by whose turn it is, see turn.keys, and by deadline.
const (
	byKey = iota
	byDeadline
	orders
)

func (h *heap) less(i, j int) bool {
	a, b := h.ts[i], h.ts[j]
	if a.keys[h.by] != b.keys[h.by] {
		return a.keys[h.by] < b.keys[h.by]
	}
	return a.order < b.order
}

func (h *heap) swap(i, j int) {
	h.ts[i], h.ts[j] = h.ts[j], h.ts[i]
	h.ts[i].pos[h.by], h.ts[j].pos[h.by] = i+1, j+1
}

func (h *heap) push(t *turn) {
	h.ts = append(h.ts, t)
	t.pos[h.by] = len(h.ts)
	h.up(len(h.ts) - 1)
}

// first is the smallest, nil when there is none.
func (h *heap) first() *turn {
	if len(h.ts) == 0 {
		return nil
	}
	return h.ts[0]
}

// remove takes out a turn that is in the heap.
func (h *heap) remove(t *turn) {
	i, last := t.pos[h.by]-1, len(h.ts)-1
	h.swap(i, last)
	h.ts[last] = nil
	h.ts = h.ts[:last]
	t.pos[h.by] = 0
	if i < last {
		h.down(i)
		h.up(i)
	}
}

func (h *heap) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !h.less(i, p) {
			return
		}
		h.swap(i, p)
		i = p
	}
}

func (h *heap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h.ts) {
			return
		}
		if c+1 < len(h.ts) && h.less(c+1, c) {
			c++
		}
		if !h.less(c, i) {
			return
		}
		h.swap(i, c)
		i = c
	}
}
