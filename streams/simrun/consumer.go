package simrun

import (
	"slices"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// consumer is a stream's view for one input. It outlives its service when it has
// a durable name.
type consumer struct {
	st      *stream
	in      streams.Input
	name    string
	queue   []uint64 // sequences to deliver, in order
	pending map[uint64]*inHand
	// waits lists pending deliveries by deadline; AckWait is one for all, so
	// appending keeps it in order. Those acknowledged are skipped.
	waits []wait
	armed bool
	svc   *service
	input *input
}

type inHand struct {
	attempts int
	deadline schemas.Time
}

type wait struct {
	seq      uint64
	deadline schemas.Time
}

// attach connects an input of a service to its consumer, making or renewing it
// as jsrun would, and starts delivery.
func (s *Sim) attach(svc *service, in *input, snapSeq uint64) {
	st := s.byName[in.cfg.Stream]
	st.expire(s.now)
	old := st.names[in.consumer]
	keep := old != nil && in.cfg.Durable != "" && !in.cfg.Recreate && !in.cfg.Resume
	c := old
	if !keep {
		floor := uint64(0)
		if old != nil && in.cfg.Policy != streams.NoAck {
			floor = old.ackFloor()
		}
		if old != nil {
			st.drop(old)
		}
		c = &consumer{st: st, in: in.cfg, name: in.consumer, pending: map[uint64]*inHand{}}
		c.fill(floor, snapSeq)
		st.add(c)
	}
	c.svc, c.input = svc, in
	in.c = c
	s.pump(c)
	s.arm(c)
}

func (st *stream) add(c *consumer) {
	st.names[c.name] = c
	if len(c.in.Filters) == 0 {
		st.all = append(st.all, c)
		return
	}
	for _, h := range c.heads() {
		st.byHead[h] = append(st.byHead[h], c)
	}
}

func (st *stream) drop(c *consumer) {
	delete(st.names, c.name)
	st.all = slices.DeleteFunc(st.all, func(o *consumer) bool { return o == c })
	for _, h := range c.heads() {
		st.byHead[h] = slices.DeleteFunc(st.byHead[h], func(o *consumer) bool { return o == c })
	}
}

func (c *consumer) heads() []string {
	var out []string
	for _, f := range c.in.Filters {
		if h := head(f); !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// firstHead is the head under which a subject finds this consumer, so that two
// filters that both match deliver once.
func (c *consumer) firstHead(subject string) string {
	for _, f := range c.in.Filters {
		if streams.Matches(f, subject) {
			return head(f)
		}
	}
	return ""
}

// ackFloor is the first sequence that is not known to be finished.
func (c *consumer) ackFloor() uint64 {
	lo := c.st.base + uint64(len(c.st.msgs))
	if len(c.queue) > 0 {
		lo = min(lo, slices.Min(c.queue))
	}
	for seq := range c.pending {
		lo = min(lo, seq)
	}
	return lo
}

// fill puts what the stream already holds into the queue, by the start that the
// input asks for.
func (c *consumer) fill(floor, snapSeq uint64) {
	from, end := uint64(1), c.st.base+uint64(len(c.st.msgs))
	last := false
	switch {
	case c.st.cfg.Retention == streams.WorkQueue:
	case c.in.Resume && snapSeq > 0 && floor > 0:
		from = min(snapSeq+1, floor)
	case c.in.Resume && snapSeq > 0:
		from = snapSeq + 1
	case c.in.Recreate && floor > 0:
		from = floor
	default:
		switch c.in.Deliver {
		case streams.DeliverAll:
		case streams.DeliverNew:
			from = end
		case streams.DeliverFromSeq:
			from = c.in.FromSeq
		case streams.DeliverLastPerSubject:
			last = true
		}
	}
	for seq := max(from, c.st.base); seq < end; seq++ {
		m := c.st.get(seq)
		if m != nil && c.in.Wants(m.subject) && (!last || c.st.lastSeq(m.subject) == seq) {
			c.queue = append(c.queue, seq)
		}
	}
}

// pump delivers what may be delivered.
func (s *Sim) pump(c *consumer) {
	for len(c.queue) > 0 && c.svc != nil && (c.in.Policy == streams.NoAck || len(c.pending) < c.in.MaxAckPending) {
		seq := c.queue[0]
		c.queue = c.queue[1:]
		m := c.st.get(seq)
		if m == nil {
			continue // aged out, or replaced by a later one of its subject
		}
		again := false
		if c.in.Policy != streams.NoAck {
			h := c.pending[seq]
			if h == nil {
				h = &inHand{}
				c.pending[seq] = h
			}
			h.attempts++
			h.deadline = s.now + schemas.Time(c.in.AckWait)
			c.waits = append(c.waits, wait{seq, h.deadline})
			again = h.attempts > 1
			s.arm(c)
		}
		s.deliver(c, m, again)
	}
}

// deliver sends one message on its way to the service.
func (s *Sim) deliver(c *consumer, m *stored, again bool) {
	svc, in, life := c.svc, c.input, c.svc.life
	s.at(s.arrival(svc.link, in.lane), prioDeliver, func() {
		if svc.life == life {
			svc.receive(in, m, again)
		}
	})
}

// arm makes sure that the next deadline is looked at.
func (s *Sim) arm(c *consumer) {
	for len(c.waits) > 0 {
		h := c.pending[c.waits[0].seq]
		if h != nil && h.deadline == c.waits[0].deadline {
			break
		}
		c.waits = c.waits[1:]
	}
	if c.armed || len(c.waits) == 0 {
		return
	}
	c.armed = true
	s.at(max(c.waits[0].deadline, s.now), prioBus, func() {
		c.armed = false
		s.overdue(c)
	})
}

// overdue puts what was not acknowledged in time at the head of the queue.
func (s *Sim) overdue(c *consumer) {
	if c.st.names[c.name] != c {
		return
	}
	var again []uint64
	for len(c.waits) > 0 && c.waits[0].deadline <= s.now {
		w := c.waits[0]
		c.waits = c.waits[1:]
		if h := c.pending[w.seq]; h != nil && h.deadline == w.deadline {
			again = append(again, w.seq)
		}
	}
	if len(again) > 0 {
		c.queue = append(again, c.queue...)
	}
	s.redeliver(c)
	s.arm(c)
}

// redeliver is pump for a queue whose head is pending already: those do not
// count against MaxAckPending once more.
func (s *Sim) redeliver(c *consumer) {
	for len(c.queue) > 0 && c.svc != nil {
		h := c.pending[c.queue[0]]
		if h == nil {
			break
		}
		seq := c.queue[0]
		c.queue = c.queue[1:]
		m := c.st.get(seq)
		if m == nil {
			delete(c.pending, seq)
			continue
		}
		h.attempts++
		h.deadline = s.now + schemas.Time(c.in.AckWait)
		c.waits = append(c.waits, wait{seq, h.deadline})
		s.deliver(c, m, true)
	}
	s.pump(c)
}

// ack finishes a message; on a work queue it is deleted.
func (s *Sim) ack(c *consumer, seq uint64) {
	if c.pending[seq] == nil {
		return
	}
	delete(c.pending, seq)
	if c.st.cfg.Retention == streams.WorkQueue {
		c.st.remove(seq)
	}
	s.pump(c)
}

// nak brings a message back after a delay.
func (s *Sim) nak(c *consumer, seq uint64, delay schemas.Time) {
	h := c.pending[seq]
	if h == nil {
		return
	}
	// Not in the list of waits: it has its own time.
	h.deadline = schemas.Never
	s.at(s.now+delay, prioBus, func() {
		if c.pending[seq] == h && h.deadline == schemas.Never && c.st.names[c.name] == c {
			c.queue = append([]uint64{seq}, c.queue...)
			s.redeliver(c)
		}
	})
}
