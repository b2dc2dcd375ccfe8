package jsrun

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Bodies that settle an input message.
var (
	ackBody = []byte("+ACK")
	nakBody = []byte("-NAK")
)

const (
	// tickEvery bounds how often an actor is ticked, whatever Next says.
	tickEvery = schemas.Time(time.Millisecond)
	// scanEvery is how often outstanding publishes are looked at for repeats.
	scanEvery = schemas.Time(50 * time.Millisecond)
	// burst bounds how many messages of one source are handled before the others
	// get their turn.
	burst = 64
)

// Runner runs one actor. Its methods may be called from any goroutine; the actor
// is touched only by the one that calls Run.
type Runner struct {
	cfg    Config
	js     jetstream.JetStream
	stats  Stats
	inputs []*input
	byRoot map[schemas.Root]*input
	inbox  chan delivery
	posted mailbox
	box    *outbox
	ready  chan struct{}
	ended  chan struct{} // closed when Run returns

	out      []schemas.Msg
	encoded  []streams.Encoded
	lastTick schemas.Time
	lastScan schemas.Time
	stopping bool
	bus      busState
	snap     snapState
}

// New checks the configuration. Nothing starts before Run.
func New(cfg Config) (*Runner, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("jsrun: %w", err)
	}
	r := &Runner{
		cfg: cfg, js: js, byRoot: map[schemas.Root]*input{}, ready: make(chan struct{}), ended: make(chan struct{}),
		inbox: make(chan delivery, cfg.Inbox), posted: mailbox{wake: make(chan struct{}, 1)},
	}
	for i, ic := range cfg.Inputs {
		in := newInput(ic, cfg.Topology, cfg.Name+"-"+strconv.Itoa(i))
		r.inputs = append(r.inputs, in)
		if in.cfg.Policy != streams.NoAck && in.root != "" {
			r.byRoot[in.root] = in
		}
	}
	return r, nil
}

// Stats returns the counters.
func (r *Runner) Stats() *Stats { return &r.stats }

// Ready is closed when every input is attached: what is published from then on
// reaches the actor.
func (r *Runner) Ready() <-chan struct{} { return r.ready }

// Call runs f in the goroutine that owns the actor and waits for it, so that f
// may read the actor's state: that is how services answer requests. It returns
// an error when ctx ends or the runner has ended before f ran.
func (r *Runner) Call(ctx context.Context, f func()) error {
	done := make(chan struct{})
	r.posted.call(func() {
		defer close(done)
		if ctx.Err() == nil {
			f()
		}
	})
	select {
	case <-done:
		return ctx.Err()
	case <-r.ended:
		return fmt.Errorf("jsrun: %s has ended", r.cfg.Name)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Inject hands a message to the actor as if it had come in, without any input
// behind it. The caller bounds how many are on the way.
func (r *Runner) Inject(m schemas.Msg) { r.posted.push(m) }

// Run carries the actor until ctx ends. It then finishes what is outstanding
// within StopTimeout and returns nil, or the reason why it could not go on.
func (r *Runner) Run(ctx context.Context) error {
	defer close(r.ended)
	if err := r.restore(ctx); err != nil {
		return err
	}
	box, err := newOutbox(r.cfg.Conn, &r.cfg, &r.stats)
	if err != nil {
		return fmt.Errorf("jsrun: %s: subscribing for acknowledgements: %w", r.cfg.Name, err)
	}
	r.box = box
	defer box.close()
	status := r.cfg.Conn.StatusChanged()
	defer r.cfg.Conn.RemoveStatusListener(status)

	feedCtx, stopFeeding := context.WithCancel(ctx)
	var wg sync.WaitGroup
	r.startFeeders(feedCtx, &wg)
	err = r.loop(ctx, status)
	stopFeeding()
	wg.Wait()
	r.bus.wait()
	if err != nil {
		return err
	}
	return r.stop()
}

func (r *Runner) startFeeders(ctx context.Context, wg *sync.WaitGroup) {
	left := len(r.inputs)
	if left == 0 {
		close(r.ready)
	}
	var mu sync.Mutex
	attached := func() {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			close(r.ready)
		}
	}
	for _, in := range r.inputs {
		f := &feeder{
			nc: r.cfg.Conn, js: r.js, in: in, snapSeq: r.snap.loaded[in.cfg.Stream], inbox: r.inbox,
			stats: &r.stats, log: r.cfg.Logger.With("service", r.cfg.Name), ready: attached,
		}
		wg.Go(func() { f.run(ctx) })
	}
}

// loop is the heart: one goroutine, one message at a time.
func (r *Runner) loop(ctx context.Context, status <-chan nats.Status) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	armed := schemas.Time(-1)
	for {
		if at := r.wakeAt(); at != armed {
			armed = at
			timer.Reset(r.until(at))
		}
		inbox, wake := r.inbox, r.posted.wake
		if r.loaded(1) {
			inbox = nil
		}
		if r.loaded(2) {
			wake = nil
		}
		select {
		case d := <-inbox:
			r.take(d)
			for n := 1; n < burst && len(r.inbox) > 0 && !r.loaded(1); n++ {
				r.take(<-r.inbox)
			}
		case m := <-r.box.acks:
			r.answer(m)
			for n := 1; n < burst && len(r.box.acks) > 0; n++ {
				r.answer(<-r.box.acks)
			}
		case <-wake:
			r.drainPosted()
		case <-timer.C:
			armed = -1
			r.timed()
		case st := <-status:
			if err := r.connChanged(st); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
		// Ticks must come even when messages never pause.
		if now := r.cfg.Clock(); now >= r.wakeAt() {
			r.timed()
		}
	}
}

// loaded reports whether outstanding publishes exceed n times the bound.
func (r *Runner) loaded(n int) bool {
	return r.box.count >= n*r.cfg.MaxInflight || r.box.bytes >= n*r.cfg.MaxInflightBytes
}

// wakeAt is when the loop must run without a message.
func (r *Runner) wakeAt() schemas.Time {
	at := schemas.Never
	if !r.loaded(4) {
		if at = r.cfg.Actor.Next(); at != schemas.Never {
			at = max(at, r.lastTick+tickEvery)
		}
	}
	if r.box.count > 0 {
		at = min(at, r.lastScan+scanEvery)
	}
	return min(at, r.snapAt())
}

func (r *Runner) until(at schemas.Time) time.Duration {
	if at == schemas.Never {
		return time.Hour
	}
	return max(time.Duration(at-r.cfg.Clock()), 0)
}

// timed does what is due by the clock.
func (r *Runner) timed() {
	now := r.cfg.Clock()
	if r.box.count > 0 && now >= r.lastScan+scanEvery {
		r.lastScan = now
		for _, token := range r.box.due(now) {
			r.settleFailed(token, r.box.slots[token-r.box.base].lastErr)
		}
	}
	if r.stopping {
		return
	}
	if next := r.cfg.Actor.Next(); next <= now && now >= r.lastTick+tickEvery && !r.loaded(4) {
		r.lastTick = now
		r.step(&schemas.Msg{Kind: schemas.KindTick}, nil)
	}
	r.snapshotIfDue(now)
}

// take hands one delivery to the actor.
func (r *Runner) take(d delivery) {
	r.stats.Inbox.Add(-1)
	if d.err != nil {
		r.badInput(d)
		return
	}
	r.stats.In.Add(1)
	d.in.stepped = max(d.in.stepped, d.msg.Seq)
	if r.cfg.OnIn != nil {
		r.cfg.OnIn(&d.msg)
	}
	r.step(&d.msg, d.in)
}

// step lets the actor handle a message and does what it wants. src is the input
// that the message came from, nil for local ones.
func (r *Runner) step(in *schemas.Msg, src *input) {
	r.out = r.cfg.Actor.Step(r.cfg.Clock(), in, r.out[:0])
	if src != nil && src.cfg.Policy == streams.AutoAck && !src.cfg.Core {
		r.out = append(r.out, schemas.Msg{Kind: schemas.KindAck, Subject: in.Subject, Seq: in.Seq})
	}
	if len(r.out) == 0 {
		return
	}
	r.apply(in, r.out)
	clear(r.out) // let go of the messages
}

// apply carries out the outputs of a step in their order. Everything is encoded
// before anything is sent.
func (r *Runner) apply(in *schemas.Msg, outs []schemas.Msg) {
	now := r.cfg.Clock()
	r.encoded = streams.EncodeStep(r.encoded[:0], now, in, outs, r.cfg.OnOut, r.cfg.OnBad)
	var head, cur *streams.Chain[ackRef]
	for i := range r.encoded {
		if r.encoded[i].Kind == schemas.KindAck {
			head = streams.NewChain[ackRef]()
			cur = head
			break
		}
	}
	for i := range r.encoded {
		m := &r.encoded[i]
		switch {
		case m.Kind == schemas.KindAck:
			root, _, _ := strings.Cut(m.Subject, ".")
			if in := r.byRoot[schemas.Root(root)]; in != nil {
				cur.Ack(ackRef{in: in, seq: m.Seq})
			}
		case m.Kind == schemas.KindOp:
			if m.Op != nil && r.cfg.Local != nil {
				r.cfg.Local(m.Op, r.done)
			}
		case m.Err != nil:
			r.notEncoded(m)
		case !streams.IsBus(m.Kind): // kinds that only come in
		case m.Core:
			r.sendCore(&m.Msg, m.Body)
		default:
			if cur != nil {
				cur = cur.Publish()
			}
			r.publish(&m.Msg, m.Body, cur, now)
		}
	}
	head.Advance(r.settleInput)
	clear(r.encoded) // let go of the messages
}

// notEncoded ends an output that cannot be sent; its dead letter stands right
// behind it in the step.
func (r *Runner) notEncoded(m *streams.Encoded) {
	r.stats.Failed.Add(1)
	r.cfg.Logger.Error("output cannot be encoded", "service", r.cfg.Name, "subject", m.Subject, "error", m.Err)
	if m.Confirm {
		r.posted.push(schemas.Msg{Kind: schemas.KindPublished, Subject: m.Subject, ID: m.ID, Err: m.Err.Error()})
	}
}

func (r *Runner) publish(m *schemas.Msg, body []byte, c *streams.Chain[ackRef], now schemas.Time) {
	if m.Kind == schemas.KindDead {
		r.stats.Dead.Add(1)
	}
	r.box.add(&pending{
		msg: nats.Msg{Subject: m.Subject, Header: headerFor(m, m.ID), Data: body},
		id:  m.ID, confirm: m.Confirm, expect: m.ExpectSet, dead: m.Kind == schemas.KindDead, chain: c, snap: r.snap.gen,
	}, now)
}

func (r *Runner) sendCore(m *schemas.Msg, body []byte) {
	msg := nats.Msg{Subject: m.Subject, Header: headerFor(m, m.ID), Data: body}
	if err := r.cfg.Conn.PublishMsg(&msg); err != nil {
		r.stats.Dropped.Add(1)
		r.cfg.Logger.Warn("core message dropped", "service", r.cfg.Name, "subject", m.Subject, "error", err)
		return
	}
	r.stats.Out.Add(1)
}

// ackRef names an input message in hand.
type ackRef struct {
	in  *input
	seq uint64
}

// settleInput acknowledges an input message, or gives it back when a publish
// that stood before it failed.
func (r *Runner) settleInput(a ackRef, failed bool) {
	reply, ok := a.in.take(a.seq, !failed)
	if !ok {
		return // acknowledged before, or never delivered
	}
	r.stats.Held.Add(-1)
	body := ackBody
	if failed {
		r.stats.Naked.Add(1)
		body = fmt.Appendf(nil, "-NAK {\"delay\": %d}", r.cfg.NakDelay.Nanoseconds())
	} else {
		r.stats.Acked.Add(1)
	}
	// A lost acknowledgement is repaired by redelivery, see input.arrive.
	if err := r.cfg.Conn.Publish(reply, body); err != nil {
		r.cfg.Logger.Debug("acknowledgement not sent", "service", r.cfg.Name, "error", err)
	}
}

// done is what a local operation calls when it has ended.
func (r *Runner) done(d schemas.OpDone) {
	r.posted.push(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
}

func (r *Runner) drainPosted() {
	for range burst {
		m, ok := r.posted.pop()
		if !ok {
			return
		}
		switch {
		case m.Kind == schemas.KindNone:
			m.local()
		case !r.stopping || m.Kind == schemas.KindPublished:
			r.step(&m.Msg, nil)
		}
	}
	r.posted.again()
}

// mailbox holds local messages until the runner takes them. Its length is
// bounded by the operations, confirmations and checks that are outstanding.
type mailbox struct {
	mu   sync.Mutex
	q    []posting
	wake chan struct{}
}

// posting is a message for the actor, or, with KindNone, something for the
// runner's goroutine to do.
type posting struct {
	schemas.Msg
	local func()
}

func (b *mailbox) push(m schemas.Msg) { b.put(posting{Msg: m}) }

func (b *mailbox) call(f func()) { b.put(posting{local: f}) }

func (b *mailbox) put(p posting) {
	b.mu.Lock()
	b.q = append(b.q, p)
	b.mu.Unlock()
	b.again()
}

func (b *mailbox) again() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *mailbox) pop() (posting, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.q) == 0 {
		return posting{}, false
	}
	p := b.q[0]
	b.q[0] = posting{}
	if b.q = b.q[1:]; len(b.q) == 0 {
		b.q = nil
	}
	return p, true
}
