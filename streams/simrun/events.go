package simrun

import "github.com/weir-dev/weir/schemas"

// event is something that happens at a time.
type event struct {
	at schemas.Time
	// key orders events of one instant: the priority in the upper bits, then the order
	// of creation, so that no two events are equal.
	key uint64
	do  func()
}

// prioShift leaves room for 2^60 events.
const prioShift = 60

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.key < o.key }

// events is a heap with four children per node: half as deep as one with two, and the
// children of a node share cache lines.
type events []event

func (h *events) push(e event) {
	q := append(*h, e)
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&q[up]) {
			break
		}
		q[i] = q[up]
		i = up
	}
	q[i] = e
	*h = q
}

func (h *events) pop() event {
	q := *h
	top, last := q[0], len(q)-1
	e := q[last]
	q[last] = event{}
	q = q[:last]
	*h = q
	if last == 0 {
		return top
	}
	i := 0
	for {
		c := 4*i + 1
		if c >= last {
			break
		}
		least := c
		for k := c + 1; k < min(c+4, last); k++ {
			if q[k].before(&q[least]) {
				least = k
			}
		}
		if !q[least].before(&e) {
			break
		}
		q[i] = q[least]
		i = least
	}
	q[i] = e
	return top
}

func (s *Sim) at(t schemas.Time, prio int, f func()) {
	s.created++
	s.events.push(event{at: t, key: uint64(prio)<<prioShift | s.created, do: f})
}
