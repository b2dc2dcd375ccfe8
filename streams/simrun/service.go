package simrun

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Service is an actor with all that is needed to run it.
type Service struct {
	Name   string
	Actor  schemas.Actor
	Inputs []streams.Input
	// Local returns the completion of an operation and how long it takes.
	Local func(now schemas.Time, op *schemas.Op) (schemas.OpDone, time.Duration)
	// LocalAsync, instead of Local, starts an operation whose end is not known yet,
	// because another one may interrupt it. It calls done once, at once or later (see
	// Sim.Timer).
	LocalAsync func(now schemas.Time, op *schemas.Op, done func(schemas.OpDone))
	OnIn       func(in *schemas.Msg)
	OnOut      func(in, out *schemas.Msg)
	OnBad      func(subject string, seq uint64, body []byte, err error) []schemas.Msg
	// SnapshotEvery is 0 for a service without snapshots. A snapshot is read at
	// Start and written in between and at Stop.
	SnapshotEvery time.Duration
}

// input is one input of a running service.
type input struct {
	cfg      streams.Input
	consumer string
	lane     string
	root     schemas.Root
	c        *consumer
	stepped  uint64
	held     map[uint64]bool
	acked    map[uint64]bool // acknowledgements that may have been lost
	ackLog   []uint64
}

// recentAcks bounds input.acked, as jsrun does.
const recentAcks = 4096

// service is one life of an actor.
type service struct {
	s      *Sim
	cfg    Service
	link   *link
	life   uint64
	inputs []*input
	byRoot map[schemas.Root]*input

	out      []schemas.Msg
	encoded  []streams.Encoded
	lastTick schemas.Time
	tickAt   schemas.Time
	pubs     uint64
	snap     snapping
}

// coreSub is a plain subscription.
type coreSub struct {
	svc    *service
	in     *input
	filter string
}

// Start runs a service from now on. A name is in use once at a time.
func (s *Sim) Start(cfg Service) error {
	if s.services[cfg.Name] != nil || !schemas.ValidID(cfg.Name) || cfg.Actor == nil {
		return fmt.Errorf("%w: service %q must have an actor and a valid name of its own", ErrConfig, cfg.Name)
	}
	if err := streams.CheckInputs(s.o.Topology, cfg.Inputs); err != nil {
		return err
	}
	s.created++
	v := &service{
		s: s, cfg: cfg, link: s.newLink(cfg.Name), life: s.created, byRoot: map[schemas.Root]*input{},
		tickAt: schemas.Never,
	}
	// A restarted service must not repeat the luck of its first life.
	v.link.rnd.state ^= v.life
	seqs, err := v.restore()
	if err != nil {
		return err
	}
	s.services[cfg.Name] = v
	for i, ic := range cfg.Inputs {
		v.addInput(i, ic, seqs)
	}
	s.logf("%s starts", cfg.Name)
	v.schedule()
	return nil
}

func (v *service) addInput(i int, ic streams.Input, seqs map[string]uint64) {
	in := &input{
		cfg: ic.WithDefaults(), consumer: v.cfg.Name + "-" + strconv.Itoa(i), lane: "in " + strconv.Itoa(i),
		held: map[uint64]bool{}, acked: map[uint64]bool{}, stepped: seqs[ic.Stream],
	}
	v.inputs = append(v.inputs, in)
	if ic.Core {
		for _, f := range ic.Filters {
			v.s.cores = append(v.s.cores, &coreSub{svc: v, in: in, filter: f})
		}
		return
	}
	if ic.Durable != "" {
		in.consumer = ic.Durable
	}
	for _, r := range schemas.Roots() {
		if streams.StreamOf(r) == ic.Stream {
			in.root = r
		}
	}
	if ic.Policy != streams.NoAck {
		v.byRoot[in.root] = in
	}
	v.s.attach(v, in, seqs[ic.Stream])
}

// Crash ends a service as kill -9 does: what it had sent arrives, what it was
// told is forgotten.
func (s *Sim) Crash(name string) {
	if v := s.services[name]; v != nil {
		s.logf("%s crashes", name)
		v.end()
	}
}

// Stop ends a service in order: what is in hand goes back, the state is saved
// when nothing is outstanding.
func (s *Sim) Stop(name string) error {
	v := s.services[name]
	if v == nil {
		return nil
	}
	s.logf("%s stops", name)
	err := v.lastSnapshot()
	for _, in := range v.inputs {
		for _, seq := range sorted(in.held) {
			s.nak(in.c, seq, 0)
		}
	}
	v.end()
	return err
}

func sorted(m map[uint64]bool) []uint64 {
	out := make([]uint64, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (v *service) end() {
	v.life = 0
	delete(v.s.services, v.cfg.Name)
	v.s.cores = slices.DeleteFunc(v.s.cores, func(c *coreSub) bool { return c.svc == v })
	for _, in := range v.inputs {
		if in.c == nil {
			continue
		}
		in.c.svc, in.c.input = nil, nil
		if in.cfg.Durable == "" {
			in.c.st.drop(in.c)
		}
	}
}

// receive handles a message that arrived on an input.
func (v *service) receive(in *input, m *stored, again bool) {
	if in.cfg.Policy != streams.NoAck {
		if in.held[m.seq] {
			return
		}
		if in.acked[m.seq] {
			v.sendAck(in, m.seq)
			return
		}
		in.held[m.seq] = true
	}
	in.stepped = max(in.stepped, m.seq)
	v.handle(in, &m.packet, m.seq, m.at, again)
}

// handle decodes a message and lets the actor step.
func (v *service) handle(in *input, p *packet, seq uint64, at schemas.Time, again bool) {
	msg, err := v.s.decode(p)
	msg.Seq, msg.At, msg.Redelivered, msg.Trace = seq, at, again, p.trace
	ack := in.cfg.Policy != streams.NoAck && !in.cfg.Core
	if err != nil {
		outs := []schemas.Msg{streams.DeadLetter(v.s.now, p.subject, seq, p.body, schemas.CodeInvalid, err.Error())}
		if v.cfg.OnBad != nil {
			outs = append(outs, v.cfg.OnBad(p.subject, seq, p.body, err)...)
		}
		if ack {
			outs = append(outs, schemas.Msg{Kind: schemas.KindAck, Subject: p.subject, Seq: seq})
		}
		v.apply(&msg, outs)
		return
	}
	if v.cfg.OnIn != nil {
		v.cfg.OnIn(&msg)
	}
	v.step(&msg, ack && in.cfg.Policy == streams.AutoAck)
}

func (s *Sim) decode(p *packet) (schemas.Msg, error) {
	if p.body == nil {
		return p.message(), nil
	}
	m, err := schemas.DecodeMsg(p.subject, p.body)
	m.Subject = p.subject
	return m, err
}

// step lets the actor handle a message and does what it wants.
func (v *service) step(in *schemas.Msg, autoAck bool) {
	v.s.steps++
	if v.s.o.Log != nil {
		v.s.logf("%s gets %d %s %d", v.cfg.Name, in.Kind, in.Subject, in.Seq)
	}
	v.out = v.cfg.Actor.Step(v.s.now, in, v.out[:0])
	if autoAck {
		v.out = append(v.out, schemas.Msg{Kind: schemas.KindAck, Subject: in.Subject, Seq: in.Seq})
	}
	if len(v.out) > 0 {
		v.apply(in, v.out)
		clear(v.out)
	}
	v.schedule()
}

// ackRef names an input message in hand.
type ackRef struct {
	in  *input
	seq uint64
}

// apply carries out the outputs of a step in their order, like jsrun. With ShareBodies
// nothing is encoded, and subjects are not checked.
func (v *service) apply(in *schemas.Msg, outs []schemas.Msg) {
	head := streams.NewChain[ackRef]()
	cur := head
	if v.s.o.ShareBodies {
		for i := range outs {
			m := &outs[i]
			if v.cfg.OnOut != nil && streams.IsBus(m.Kind) {
				v.cfg.OnOut(in, m)
			}
			cur = v.carry(m, nil, nil, cur)
		}
		head.Advance(v.settleInput)
		return
	}
	v.encoded = streams.EncodeStep(v.encoded[:0], v.s.now, in, outs, v.cfg.OnOut, v.cfg.OnBad)
	for i := range v.encoded {
		m := &v.encoded[i]
		cur = v.carry(&m.Msg, m.Body, m.Err, cur)
	}
	head.Advance(v.settleInput)
	clear(v.encoded)
}

// carry carries out one output and returns the chain for the next one.
func (v *service) carry(m *schemas.Msg, body []byte, err error, cur *streams.Chain[ackRef]) *streams.Chain[ackRef] {
	switch {
	case m.Kind == schemas.KindAck:
		root, _, _ := strings.Cut(m.Subject, ".")
		if to := v.byRoot[schemas.Root(root)]; to != nil {
			cur.Ack(ackRef{to, m.Seq})
		}
	case m.Kind == schemas.KindOp:
		switch {
		case m.Op == nil:
		case v.cfg.LocalAsync != nil:
			v.start(m.Op)
		case v.cfg.Local != nil:
			v.local(m.Op)
		}
	case err != nil:
		if m.Confirm {
			v.post(v.s.now, schemas.Msg{Kind: schemas.KindPublished, Subject: m.Subject, ID: m.ID, Err: err.Error()})
		}
	case !streams.IsBus(m.Kind): // kinds that only come in
	case m.Core:
		v.s.sendCore(v.link, packetOf(m, body))
	default:
		cur = cur.Publish()
		v.publish(m, body, cur)
	}
	return cur
}

func packetOf(m *schemas.Msg, body []byte) *packet {
	p := &packet{subject: m.Subject, id: m.ID, expectSet: m.ExpectSet, expect: m.ExpectSeq, body: body, trace: m.Trace}
	if body == nil {
		p.shared, p.kind = m.Body(), m.Kind
	}
	return p
}

// local starts an operation and brings its completion back.
func (v *service) local(op *schemas.Op) {
	d, after := v.cfg.Local(v.s.now, op)
	v.post(v.s.now+schemas.Time(max(after, 0)), schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
}

// start begins an operation whose end comes later.
func (v *service) start(op *schemas.Op) {
	life, ended := v.life, false
	v.cfg.LocalAsync(v.s.now, op, func(d schemas.OpDone) {
		if v.life == life && !ended {
			ended = true
			v.post(v.s.now, schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
		}
	})
}

// post hands a local message to the actor at that time, if it still lives.
func (v *service) post(at schemas.Time, m schemas.Msg) {
	life := v.life
	v.s.at(at, prioOp, func() {
		if v.life == life {
			v.step(&m, false)
		}
	})
}

// schedule makes sure that the actor is ticked when it asked for it.
func (v *service) schedule() {
	next := v.cfg.Actor.Next()
	if next == schemas.Never {
		return
	}
	at := max(next, v.lastTick+tickEvery, v.s.now)
	if at >= v.tickAt {
		return // looked at before anyway
	}
	v.tickAt = at
	life := v.life
	v.s.at(at, prioTick, func() {
		if v.life != life || v.tickAt != at {
			return
		}
		v.tickAt = schemas.Never
		if v.cfg.Actor.Next() > v.s.now {
			v.schedule()
			return
		}
		v.lastTick = v.s.now
		v.step(&schemas.Msg{Kind: schemas.KindTick}, false)
	})
}

// sendCore delivers a message to plain subscriptions and to a stream that
// captures its subject.
func (s *Sim) sendCore(from *link, p *packet) {
	at := s.arrival(from, p.subject)
	if from.rnd.hit(s.o.Net.LoseCore) {
		s.logf("core lost %s", p.subject)
		return
	}
	s.at(at, prioBus, func() {
		s.logf("core %s %s", p.subject, p.body)
		for _, sub := range s.cores {
			if !streams.Matches(sub.filter, p.subject) {
				continue
			}
			v, in, life := sub.svc, sub.in, sub.svc.life
			s.at(s.arrival(v.link, in.lane), prioDeliver, func() {
				if v.life == life {
					v.handle(in, p, 0, 0, false)
				}
			})
		}
		if s.streamFor(p.subject) != nil {
			q := *p
			s.take(&q)
		}
	})
}
