package replay

import "github.com/weir-dev/weir/kvtier"

// recency is plain LRU over blocks: one list, what was used last at its end. A prompt
// uses its blocks from the first one on, so that its first block goes first.
type recency struct {
	*meter
	room       int32
	prev, next []int32 // by block; the sentinel is block number len(Blocks)
	in         []bool
}

func newRecency(m *meter, blocks int32) *recency {
	n := len(m.log.Blocks)
	r := &recency{meter: m, room: blocks, prev: make([]int32, n+1), next: make([]int32, n+1), in: make([]bool, n)}
	r.prev[n], r.next[n] = int32(n), int32(n)
	return r
}

func (r *recency) run() {
	for i := range r.log.Ops {
		o := &r.log.Ops[i]
		switch o.Kind {
		case OpStart:
			c := &r.log.Calls[o.Call]
			found := int32(0)
			c.each(c.Look, func(_, b int32) bool {
				if r.in[b] {
					found++
				}
				return r.in[b]
			})
			r.looked(c, found)
			r.touch(o.At, c, 0, c.Look)
		case OpEnd:
			c := &r.log.Calls[o.Call]
			r.touch(o.At, c, c.Look, c.Blocks)
		case OpBranch:
		}
	}
}

// touch uses blocks from..to-1 of a call, and computes those that are not there.
func (r *recency) touch(now int64, c *Call, from, to int32) {
	end := int32(len(r.in))
	c.each(to, func(i, b int32) bool {
		if i < from {
			return true
		}
		if r.in[b] {
			p, q := r.prev[b], r.next[b]
			r.next[p], r.prev[q] = q, p
		} else {
			r.computed(now, b)
			if r.room == 0 {
				old := r.next[end]
				q := r.next[old]
				r.next[end], r.prev[q] = q, end
				r.in[old] = false
				r.gone(now, old, kvtier.ClassIdle)
				r.room++
			}
			r.room--
			r.in[b] = true
		}
		last := r.prev[end]
		r.next[last], r.prev[b], r.next[b], r.prev[end] = b, last, end, b
		return true
	})
}
