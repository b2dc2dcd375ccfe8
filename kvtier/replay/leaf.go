package replay

import (
	"container/heap"

	"github.com/weir-dev/weir/kvtier"
)

// leaves is a cache of whole blocks that evicts leaves only, in an order that a rule
// gives them. Contexts in work go last.
type leaves struct {
	*meter
	rule     rule
	room     int32
	in       []bool
	children []int32
	use      []int64
	until    []int64 // pinned until then
	stamp    []uint32
	lease    []int32
	op       int32
	free     leafHeap // not pinned, when they were pushed
	pinned   leafHeap
}

// rule is what tells policies of leaves apart.
type rule interface {
	// rank of a block: smaller goes first.
	rank(b int32) int64
	// ended is told when a call was answered and its blocks are in memory; it ranks
	// again what changes.
	ended(l *leaves, now int64, call int32)
}

// leaf is an entry of a heap. It counts as long as its stamp is that of the block.
type leaf struct {
	rank, use int64
	block     int32
	index     int32
	stamp     uint32
}

type leafHeap []leaf

func (h leafHeap) Len() int      { return len(h) }
func (h leafHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h leafHeap) Less(i, j int) bool {
	a, b := &h[i], &h[j]
	switch {
	case a.rank != b.rank:
		return a.rank < b.rank
	case a.use != b.use:
		return a.use < b.use
	case a.index != b.index:
		return a.index > b.index
	}
	return a.block < b.block
}
func (h *leafHeap) Push(x any) { *h = append(*h, x.(leaf)) }
func (h *leafHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func newLeaves(m *meter, blocks int32, r rule) *leaves {
	n := len(m.log.Blocks)
	return &leaves{
		meter: m, rule: r, room: blocks, in: make([]bool, n), children: make([]int32, n), use: make([]int64, n),
		until: make([]int64, n), stamp: make([]uint32, n), lease: make([]int32, n),
	}
}

func (l *leaves) run() {
	ends := map[int32]int64{} // when calls in work are answered
	for i := range l.log.Ops {
		if o := &l.log.Ops[i]; o.Kind == OpEnd {
			ends[o.Call] = o.At
		}
	}
	for i := range l.log.Ops {
		o := &l.log.Ops[i]
		l.op++
		switch o.Kind {
		case OpStart:
			c := &l.log.Calls[o.Call]
			found := int32(0)
			c.each(c.Look, func(_, b int32) bool {
				if l.in[b] {
					found++
				}
				return l.in[b]
			})
			l.looked(c, found)
			l.touch(o.At, c, 0, c.Look, ends[o.Call])
		case OpEnd:
			c := &l.log.Calls[o.Call]
			l.touch(o.At, c, c.Look, c.Blocks, 0)
			l.rule.ended(l, o.At, o.Call)
		case OpBranch:
		}
	}
}

// touch uses blocks from..to-1 of a call, computes those that are not there, and pins
// them until a time. Those before them make no room for them.
func (l *leaves) touch(now int64, c *Call, from, to int32, until int64) {
	c.each(to, func(_, b int32) bool {
		l.lease[b] = l.op
		return true
	})
	full := false
	c.each(to, func(i, b int32) bool {
		if i < from {
			return true
		}
		l.use[b], l.until[b] = now, max(l.until[b], until)
		if l.in[b] {
			l.again(now, b)
			return true
		}
		l.computed(now, b)
		if full = full || !l.make(now); full {
			l.res.Refused++
			return true
		}
		l.room--
		l.in[b] = true
		if p := l.log.Blocks[b].Parent; p >= 0 {
			l.children[p]++
			l.stamp[p]++
		}
		l.again(now, b)
		return true
	})
}

// push ranks a leaf anew.
func (l *leaves) push(now int64, b int32) {
	l.stamp[b]++
	e := leaf{rank: l.rule.rank(b), use: l.use[b], block: b, index: l.log.Blocks[b].Index, stamp: l.stamp[b]}
	if l.until[b] > now {
		e.rank = l.until[b]
		heap.Push(&l.pinned, e)
		return
	}
	heap.Push(&l.free, e)
}

// again ranks a block anew if it is a leaf in memory.
func (l *leaves) again(now int64, b int32) {
	if l.in[b] && l.children[b] == 0 {
		l.push(now, b)
	}
}

// make makes sure that there is room for one block.
func (l *leaves) make(now int64) bool {
	if l.room > 0 {
		return true
	}
	for len(l.pinned) > 0 && (l.pinned[0].stamp != l.stamp[l.pinned[0].block] || l.pinned[0].rank <= now) {
		if e := heap.Pop(&l.pinned).(leaf); e.stamp == l.stamp[e.block] {
			l.push(now, e.block)
		}
	}
	for _, h := range [...]*leafHeap{&l.free, &l.pinned} {
		var own []leaf // of the operation in progress
		done := false
		for len(*h) > 0 && !done {
			e := heap.Pop(h).(leaf)
			switch {
			case e.stamp != l.stamp[e.block]:
			case l.lease[e.block] == l.op:
				own = append(own, e)
			default:
				l.evict(now, e.block)
				done = true
			}
		}
		for _, e := range own {
			heap.Push(h, e)
		}
		if done {
			return true
		}
	}
	return false
}

func (l *leaves) evict(now int64, b int32) {
	l.in[b] = false
	l.stamp[b]++
	l.room++
	l.gone(now, b, kvtier.ClassIdle)
	if p := l.log.Blocks[b].Parent; p >= 0 {
		l.children[p]--
		l.again(now, p)
	}
}
