package hostmem

import (
	"slices"
	"time"
)

// ask serves a reservation, or lets it wait for room within its deadline.
func (p *pool) ask(c *conn, m message) {
	if m.N <= 0 || m.N > maxRefs || m.Extra < 0 || m.WaitMS < 0 || m.ID == 0 {
		_ = c.nc.Close() // no client of ours sends this
		return
	}
	now := time.Now()
	extra := min(m.Extra, p.cacheSlots(), maxRefs-m.N)
	if len(p.waiting) == 0 {
		if refs, ok := p.reserve(c.writer.no, m.N, extra, now.UnixNano()); ok {
			c.send(message{Op: opSlots, ID: m.ID, Slots: refs})
			return
		}
		p.count.refused++
	}
	wait := min(time.Duration(m.WaitMS)*time.Millisecond, maxWait)
	if wait <= 0 || len(p.waiting) >= maxWaiting || int64(m.N) > p.arena.slots {
		c.send(message{Op: opError, ID: m.ID, Code: codeFull})
		return
	}
	p.waiting = append(p.waiting, waiting{conn: c, id: m.ID, n: m.N, deadline: now.Add(wait)})
	if len(p.waiting) > 1 {
		return
	}
	// The first that waits: readers say when they release, and everybody gives
	// back what is reserved and unused.
	p.pressure().Store(1)
	for _, w := range p.writers {
		if w != nil && w.conn != nil {
			w.conn.send(message{Op: opTrim})
		}
	}
	p.serveWaiting(now) // a lease may have ended before the flag was up
}

// serveWaiting gives room to reservations in the order in which they came, so
// that small ones cannot starve a large one, and refuses those whose time is up.
func (p *pool) serveWaiting(now time.Time) {
	if len(p.waiting) == 0 {
		return
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(w waiting) bool {
		if now.Before(w.deadline) {
			return false
		}
		w.conn.send(message{Op: opError, ID: w.id, Code: codeFull})
		return true
	})
	for len(p.waiting) > 0 {
		w := p.waiting[0]
		refs, ok := p.reserve(w.conn.writer.no, w.n, 0, now.UnixNano())
		if !ok {
			return
		}
		w.conn.send(message{Op: opSlots, ID: w.id, Slots: refs})
		p.waiting = p.waiting[1:]
	}
	p.pressure().Store(0)
}
