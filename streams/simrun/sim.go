package simrun

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Options of a simulation. The zero value works.
type Options struct {
	Seed uint64
	// Topology is streams.Topology of zero options by default.
	Topology []streams.Stream
	// Start is the time at which the world begins, 2026-01-01 by default.
	Start schemas.Time
	Net   Net
	// ShareBodies hands the very structs from sender to receivers instead of
	// encoding and decoding them. It is for large simulations; actors that change
	// what they received would then change it for others.
	ShareBodies bool
	// Log gets one line per event that a test may compare; nil for none.
	Log io.Writer
}

// Net is the modelled network between a service and the bus.
type Net struct {
	// MinDelay and MaxDelay bound one way, 50 µs and 300 µs by default.
	MinDelay, MaxDelay time.Duration
	// LoseAck is the probability that the acknowledgement of a publish is lost:
	// the publish is repeated under its id, as jsrun does.
	LoseAck float64
	// Redeliver is the probability that an acknowledgement of an input is lost:
	// the message comes again after its AckWait.
	Redeliver float64
	// LoseCore is the probability that a core message is lost.
	LoseCore float64
}

// Times of the runner's behaviour, those of jsrun's defaults.
const (
	ackTimeout = schemas.Time(5 * time.Second)
	retryFor   = schemas.Time(2 * time.Minute)
	nakDelay   = schemas.Time(time.Second)
	minBackoff = schemas.Time(50 * time.Millisecond)
	maxBackoff = schemas.Time(2 * time.Second)
	tickEvery  = schemas.Time(time.Millisecond)
)

// Priorities order events of one instant: the bus before completions before
// ticks, so that an actor that is ticked has seen everything up to now.
const (
	prioOutside = iota
	prioBus
	prioDeliver
	prioOp
	prioTick
)

// maxPerInstant bounds events without progress of time.
const maxPerInstant = 1 << 18

// Sim is one simulated world. It is not safe for concurrent use.
type Sim struct {
	o        Options
	now      schemas.Time
	events   events
	created  uint64
	instant  int
	streams  []*stream // in the topology's order
	byName   map[string]*stream
	services map[string]*service
	cores    []*coreSub
	outside  *link
	snaps    map[string]snapshot
	steps    uint64
	done     uint64 // events
}

// New makes a world with empty streams.
func New(o Options) (*Sim, error) {
	if o.Topology == nil {
		o.Topology = streams.Topology(streams.Options{})
	}
	if err := streams.Check(o.Topology); err != nil {
		return nil, err
	}
	if o.Start == 0 {
		o.Start = schemas.Time(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	}
	if o.Net.MinDelay == 0 && o.Net.MaxDelay == 0 {
		o.Net.MinDelay, o.Net.MaxDelay = 50*time.Microsecond, 300*time.Microsecond
	}
	if o.Net.MinDelay <= 0 || o.Net.MaxDelay < o.Net.MinDelay {
		return nil, fmt.Errorf("%w: delays from %s to %s; the shortest must be positive, or time could stand still",
			ErrConfig, o.Net.MinDelay, o.Net.MaxDelay)
	}
	s := &Sim{o: o, now: o.Start, byName: map[string]*stream{}, services: map[string]*service{}, snaps: map[string]snapshot{}}
	for _, cfg := range o.Topology {
		st := newStream(cfg)
		s.streams = append(s.streams, st)
		s.byName[cfg.Name] = st
	}
	s.outside = s.newLink("outside")
	return s, nil
}

// Now is the virtual time.
func (s *Sim) Now() schemas.Time { return s.now }

// Steps counts the messages that actors have handled.
func (s *Sim) Steps() uint64 { return s.steps }

// At calls f at that time, before everything else that happens then.
func (s *Sim) At(t schemas.Time, f func()) { s.at(max(t, s.now), prioOutside, f) }

// Timer calls f at that time, after the bus and before ticks, unless it is stopped before.
// It is for what stands in for hardware: see Service.LocalAsync.
func (s *Sim) Timer(t schemas.Time, f func()) (stop func()) {
	stopped := false
	s.at(max(t, s.now), prioOp, func() {
		if !stopped {
			f()
		}
	})
	return func() { stopped = true }
}

// RunFor lets time pass. See RunUntil.
func (s *Sim) RunFor(d time.Duration) error { return s.RunUntil(s.now + schemas.Time(d)) }

// RunUntil handles every event up to and including that time.
func (s *Sim) RunUntil(t schemas.Time) error {
	for len(s.events) > 0 && s.events[0].at <= t {
		e := s.events.pop()
		if e.at > s.now {
			s.now, s.instant = e.at, 0
		}
		if s.instant++; s.instant > maxPerInstant {
			return fmt.Errorf("%w: more than %d events at %d", ErrLivelock, maxPerInstant, s.now)
		}
		s.done++
		e.do()
	}
	s.now = max(s.now, t)
	s.instant = 0
	return nil
}

// Publish stores a message from outside at once; ID may be empty.
func (s *Sim) Publish(subject, id string, body []byte) (seq uint64, err error) {
	v := s.take(&packet{subject: subject, id: id, body: body})
	return v.seq, v.err()
}

// PublishMsg encodes and stores a message from outside at once.
func (s *Sim) PublishMsg(m *schemas.Msg) (seq uint64, err error) {
	p := &packet{subject: m.Subject, id: m.ID, expectSet: m.ExpectSet, expect: m.ExpectSeq, trace: m.Trace}
	if s.o.ShareBodies {
		p.shared, p.kind = m.Body(), m.Kind
	} else if p.body, err = schemas.Encode(m.Body()); err != nil {
		return 0, err
	}
	v := s.take(p)
	return v.seq, v.err()
}

// PublishCoreMsg sends a message from outside without storing it, as PublishCore does.
func (s *Sim) PublishCoreMsg(m *schemas.Msg) error {
	p := &packet{subject: m.Subject, trace: m.Trace}
	if s.o.ShareBodies {
		p.shared, p.kind = m.Body(), m.Kind
	} else {
		var err error
		if p.body, err = schemas.Encode(m.Body()); err != nil {
			return err
		}
	}
	s.sendCore(s.outside, p)
	return nil
}

// PublishCore sends a message from outside without storing it, except where a
// stream captures the subject.
func (s *Sim) PublishCore(subject string, body []byte) {
	s.sendCore(s.outside, &packet{subject: subject, body: body})
}

// Message is a stored message as Stored returns it.
type Message struct {
	Subject string
	ID      string
	Seq     uint64
	At      schemas.Time
	Body    []byte // nil with ShareBodies
	Trace   schemas.Trace
}

// Stored lists what a stream holds, in order.
func (s *Sim) Stored(name string) []Message {
	st := s.byName[name]
	if st == nil {
		return nil
	}
	st.expire(s.now)
	var out []Message
	for _, m := range st.msgs {
		if m != nil {
			out = append(out, Message{Subject: m.subject, ID: m.id, Seq: m.seq, At: m.at, Body: m.body, Trace: m.trace})
		}
	}
	return out
}

// Purge empties a stream.
func (s *Sim) Purge(name string) {
	if st := s.byName[name]; st != nil {
		for _, m := range slices.Clone(st.msgs) {
			if m != nil {
				st.remove(m.seq)
			}
		}
	}
}

func (s *Sim) logf(format string, args ...any) {
	if s.o.Log != nil {
		fmt.Fprintf(s.o.Log, "%d ", int64(s.now-s.o.Start))
		fmt.Fprintf(s.o.Log, format, args...)
		fmt.Fprintln(s.o.Log)
	}
}

// link is the way between one service and the bus. It keeps order per lane: a
// lane is a subject on the way out, an input on the way in.
type link struct {
	rnd  *chance
	last map[string]schemas.Time
}

// maxLanes bounds what a link remembers; lanes that are idle need no memory.
const maxLanes = 4096

func (s *Sim) newLink(name string) *link {
	return &link{rnd: newChance(s.o.Seed, name), last: map[string]schemas.Time{}}
}

// arrival is when something sent now arrives on that lane.
func (s *Sim) arrival(l *link, lane string) schemas.Time {
	at := max(s.now+l.rnd.between(s.o.Net.MinDelay, s.o.Net.MaxDelay), l.last[lane])
	if len(l.last) >= maxLanes {
		for k, t := range l.last {
			if t <= s.now {
				delete(l.last, k)
			}
		}
	}
	l.last[lane] = at
	return at
}

// Events counts what has happened.
func (s *Sim) Events() uint64 { return s.done }
