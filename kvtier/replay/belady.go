package replay

import (
	"slices"

	"github.com/weir-dev/weir/kvtier"
)

// oracle is Belady's rule in a prefix tree: what is used again last goes first, deeper
// blocks before those that they stand behind; what is never used again does not come
// in. Every use of a block uses those before it, so leaves go before their parents and
// blocks of one size make the rule the best there is.
//
// All blocks whose next use is call j are blocks of j's prompt. Memory is therefore, by
// next use, which places of that prompt it holds: one row of ranges for each call.
type oracle struct {
	*meter
	room  int32
	rows  [][]Span // by call: places of its path in memory, which it will be the next to use
	order []int32  // calls in the order of their starts
	rank  []int32  // place of a call in order
	far   int      // no row of a later start is filled
	// next uses, by operation: parts of the call's path and who uses them next.
	uses [][]use
}

// use is places From … From+N-1 of a path that call next looks up next, -1 for never.
type use struct {
	Span
	next int32
}

func newOracle(m *meter, blocks int32) *oracle {
	o := &oracle{
		meter: m, room: blocks, rows: make([][]Span, len(m.log.Calls)), rank: make([]int32, len(m.log.Calls)), uses: make([][]use, len(m.log.Ops)),
	}
	for i := range m.log.Ops {
		if p := &m.log.Ops[i]; p.Kind == OpStart {
			o.rank[p.Call] = int32(len(o.order))
			o.order = append(o.order, p.Call)
		}
	}
	o.foresee()
	return o
}

// foresee finds the next use of every block behind every operation, from the last one
// on.
func (o *oracle) foresee() {
	next := make([]int32, len(o.log.Blocks))
	for i := range next {
		next[i] = -1
	}
	for i := len(o.log.Ops) - 1; i >= 0; i-- {
		p := &o.log.Ops[i]
		if p.Kind == OpBranch {
			continue
		}
		c, from := &o.log.Calls[p.Call], int32(0)
		to := c.Look
		if p.Kind == OpEnd {
			from, to = c.Look, c.Blocks
		}
		var parts []use
		c.each(to, func(k, b int32) bool {
			if k < from {
				return true
			}
			if n := len(parts); n > 0 && parts[n-1].next == next[b] {
				parts[n-1].N++
			} else {
				parts = append(parts, use{Span{k, 1}, next[b]})
			}
			if p.Kind == OpStart {
				next[b] = p.Call
			}
			return true
		})
		o.uses[i] = parts
	}
}

func (o *oracle) run() {
	for i := range o.log.Ops {
		p := &o.log.Ops[i]
		if p.Kind == OpBranch {
			continue
		}
		c := &o.log.Calls[p.Call]
		if p.Kind == OpStart {
			row := o.rows[p.Call]
			o.rows[p.Call] = nil
			found := int32(0)
			if len(row) > 0 && row[0].From == 0 {
				found = min(row[0].N, c.Look)
			}
			o.looked(c, found)
			for _, s := range row {
				o.room += s.N
			}
		}
		for _, u := range o.uses[i] {
			o.arrive(p.At, c, u)
		}
		o.shrink(p.At)
	}
}

// arrive takes in places of a path that are in memory or were computed.
func (o *oracle) arrive(now int64, c *Call, u use) {
	c.each(u.From+u.N, func(k, b int32) bool {
		if k >= u.From && (!o.seen[b] || o.goneAt[b] > 0) {
			o.computed(now, b)
		}
		return true
	})
	if u.next < 0 {
		return
	}
	row := o.rows[u.next]
	at, _ := slices.BinarySearchFunc(row, u.From, func(s Span, from int32) int { return int(s.From - from) })
	from, to := u.From, u.From+u.N
	// Join what overlaps or touches.
	first, last := at, at
	if first > 0 && row[first-1].From+row[first-1].N >= from {
		first--
	}
	had := int32(0)
	for last < len(row) && row[last].From <= to {
		last++
	}
	for _, s := range row[first:last] {
		from, to = min(from, s.From), max(to, s.From+s.N)
		had += s.N
	}
	o.rows[u.next] = slices.Replace(row, first, last, Span{from, to - from})
	o.room -= to - from - had
	o.far = max(o.far, int(o.rank[u.next]))
}

// shrink evicts until what is left fits.
func (o *oracle) shrink(now int64) {
	for o.room < 0 {
		for len(o.rows[o.order[o.far]]) == 0 {
			o.far--
		}
		call := o.order[o.far]
		row := o.rows[call]
		last := &row[len(row)-1]
		n := min(last.N, -o.room)
		c := &o.log.Calls[call]
		for k := last.From + last.N - n; k < last.From+last.N; k++ {
			o.gone(now, c.at(k), kvtier.ClassIdle)
		}
		o.room += n
		if last.N -= n; last.N == 0 {
			o.rows[call] = row[:len(row)-1]
		}
	}
}
