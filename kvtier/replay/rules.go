package replay

import (
	"slices"
)

// refs is SGLang's rule of session references: blocks to which a session refers go
// after all others, those to which fewer sessions refer first. A session refers to its
// newest leaf and what stands before it, and still, until it is closed, to leaves from
// which its context parted.
type refs struct {
	log   *Log
	count []int64
	last  map[[2]int32]int32 // the call that a line's newest leaf is of
	held  map[int32][]ref    // what a session refers to
}

// ref is the blocks of a call's path from one on, and to their end.
type ref struct{ call, from int32 }

func sessionRefs(l *Log) *refs {
	return &refs{log: l, count: make([]int64, len(l.Blocks)), last: map[[2]int32]int32{}, held: map[int32][]ref{}}
}

func (r *refs) rank(b int32) int64 { return r.count[b] }

func (r *refs) ended(l *leaves, now int64, call int32) {
	c := &r.log.Calls[call]
	line := [2]int32{c.Session, c.Line}
	from := int32(0)
	if p, ok := r.last[line]; ok {
		from = shared(&r.log.Calls[p], c)
	}
	r.add(l, now, ref{call, from}, 1)
	r.last[line] = call
	r.held[c.Session] = append(r.held[c.Session], ref{call, from})
	if r.log.ends[call] {
		for _, h := range r.held[c.Session] {
			r.add(l, now, h, -1)
		}
		delete(r.held, c.Session)
		for _, k := range r.lines(c.Session) {
			delete(r.last, k)
		}
	}
}

// lines are the session's lines that have a leaf.
func (r *refs) lines(session int32) (out [][2]int32) {
	for k := range r.last {
		if k[0] == session {
			out = append(out, k)
		}
	}
	return out
}

func (r *refs) add(l *leaves, now int64, h ref, n int64) {
	c := &r.log.Calls[h.call]
	c.each(c.Blocks, func(i, b int32) bool {
		if i >= h.from {
			r.count[b] += n
			l.again(now, b)
		}
		return true
	})
}

// shared is how many leading blocks the paths of two calls have in common.
func shared(a, b *Call) (n int32) {
	i, j, x, y := 0, 0, int32(0), int32(0)
	for i < len(a.Path) && j < len(b.Path) && a.Path[i].From+x == b.Path[j].From+y {
		k := min(a.Path[i].N-x, b.Path[j].N-y)
		n += k
		if x += k; x == a.Path[i].N {
			i, x = i+1, 0
		}
		if y += k; y == b.Path[j].N {
			j, y = j+1, 0
		}
	}
	return n
}

// pinning is the rule of a time to live: a context is pinned from an answer on for as
// long as nine in ten waits of its class take in this load. Which tool is waited for is
// told to it. Among pinned contexts the one whose pin ends first goes first.
type pinning struct {
	log *Log
	ttl map[string]int64
}

// pins takes the times from the load itself, which favours the rule.
func pins(l *Log) *pinning {
	by := map[string][]int64{}
	for _, w := range l.waits {
		if w.ns >= 0 {
			by[w.class] = append(by[w.class], w.ns)
		}
	}
	p := &pinning{log: l, ttl: map[string]int64{}}
	for class, ns := range by {
		slices.Sort(ns)
		p.ttl[class] = ns[(len(ns)*9)/10]
	}
	return p
}

func (p *pinning) rank(int32) int64 { return 0 }

func (p *pinning) ended(l *leaves, now int64, call int32) {
	c := &p.log.Calls[call]
	until := now + p.ttl[p.log.waits[call].class]
	c.each(c.Blocks, func(_, b int32) bool {
		if until > l.until[b] {
			l.until[b] = until
			l.again(now, b)
		}
		return true
	})
}
