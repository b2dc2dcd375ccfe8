package jsrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Timing of pull requests. A request that nobody answers shows by missing
// heartbeats; it ends by itself before the server could think nobody is there.
const (
	pullExpires   = 30 * time.Second
	pullHeartbeat = 5 * time.Second
	silentAfter   = 2*pullHeartbeat + 2*time.Second
)

var (
	errKicked = errors.New("the connection was renewed")
	errSilent = errors.New("no heartbeat from the server")
)

// delivery is a decoded input on its way to the actor.
type delivery struct {
	in   *input
	msg  schemas.Msg
	body []byte // kept only when err is set
	err  error
}

// feeder reads one input and hands decoded messages to the runner's inbox.
//
// It keeps one pull request of a whole batch open and takes messages as they
// arrive, so a single message waits for nothing and a burst costs one request
// per batch. It speaks the pull protocol itself: the client library's Fetch makes
// a subscription per batch, and its Consume can stall (see the facts on
// PullMaxMessages).
type feeder struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	in      *input
	snapSeq uint64 // last sequence of this stream in the snapshot, 0 for none
	inbox   chan<- delivery
	stats   *Stats
	log     *slog.Logger
	ready   func() // once, when the input is attached
}

// run reads until ctx ends. It never gives up: what it reads may come back.
func (f *feeder) run(ctx context.Context) {
	why, backoff := atStart, minBackoff
	for ctx.Err() == nil {
		err := f.ensure(ctx, why)
		if err == nil {
			f.attached()
			started := time.Now()
			if f.in.cfg.Core {
				err = f.readCore(ctx)
			} else {
				err = f.readStream(ctx)
			}
			why = atLoss
			if time.Since(started) > maxBackoff {
				backoff = minBackoff
			}
		}
		if ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed) {
			return
		}
		if errors.Is(err, errKicked) {
			backoff = minBackoff
			continue
		}
		f.log.Warn("input interrupted", "stream", f.in.cfg.Stream, "consumer", f.in.consumer, "error", err, "again_in", backoff)
		if !f.pause(ctx, backoff) {
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func (f *feeder) attached() {
	if f.ready != nil {
		f.ready()
		f.ready = nil
	}
}

func (f *feeder) ensure(ctx context.Context, why occasion) error {
	if f.in.cfg.Core {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return f.ensureConsumer(ctx, why)
}

// pause waits, or less when the connection is renewed meanwhile.
func (f *feeder) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.in.kick:
	case <-ctx.Done():
		return false
	}
	return true
}

// coreBuffer bounds messages of a plain subscription that wait to be decoded;
// more are dropped by the client, which reports a slow consumer.
const coreBuffer = 8192

func (f *feeder) readCore(ctx context.Context) error {
	ch := make(chan *nats.Msg, coreBuffer)
	for _, filter := range f.in.cfg.Filters {
		sub, err := f.nc.ChanSubscribe(filter, ch)
		if err != nil {
			return fmt.Errorf("subscribing to %s: %w", filter, err)
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	for {
		select {
		case m := <-ch:
			d := decode(m, meta{})
			d.in, d.msg.Reply = f.in, m.Reply
			if !f.hand(ctx, d) {
				return ctx.Err()
			}
		case <-f.in.kick: // the client renews plain subscriptions itself
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// puller is one subscription with one open pull request.
type puller struct {
	ch     chan *nats.Msg
	inbox  string
	next   string // API subject
	body   []byte
	batch  int
	number int
	left   int // messages that the open request may still bring
}

func (f *feeder) readStream(ctx context.Context) error {
	p := &puller{batch: f.in.cfg.Batch, inbox: f.nc.NewInbox() + "."}
	// One request is open at a time, so this never overflows.
	p.ch = make(chan *nats.Msg, p.batch+64)
	p.next = "$JS.API.CONSUMER.MSG.NEXT." + f.in.cfg.Stream + "." + f.in.consumer
	var err error
	p.body, err = json.Marshal(struct {
		Expires   time.Duration `json:"expires"`
		Batch     int           `json:"batch"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{pullExpires, p.batch, pullHeartbeat})
	if err != nil {
		return err
	}
	sub, err := f.nc.ChanSubscribe(p.inbox+"*", p.ch)
	if err != nil {
		return err
	}
	err = f.pull(ctx, p)
	// What is here already need not come again.
	_ = sub.Unsubscribe()
	for ctx.Err() == nil {
		select {
		case m := <-p.ch:
			if m.Reply != "" {
				f.take(ctx, m)
			}
			continue
		default:
		}
		break
	}
	return err
}

func (f *feeder) pull(ctx context.Context, p *puller) error {
	if err := f.request(p); err != nil {
		return err
	}
	watch := time.NewTicker(silentAfter)
	defer watch.Stop()
	active := true
	for {
		select {
		case m := <-p.ch:
			active = true
			again, err := f.received(ctx, p, m)
			if err == nil && again {
				err = f.request(p)
			}
			if err != nil {
				return err
			}
		case <-f.in.kick:
			return errKicked
		case <-watch.C:
			if !active {
				return errSilent
			}
			active = false
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *feeder) request(p *puller) error {
	p.number++
	p.left = p.batch
	return f.nc.PublishRequest(p.next, p.inbox+strconv.Itoa(p.number), p.body)
}

// received handles a message or a status. again is true when the open request
// has ended and another one is needed.
func (f *feeder) received(ctx context.Context, p *puller, m *nats.Msg) (again bool, err error) {
	status := ""
	if len(m.Data) == 0 && len(m.Header) > 0 {
		status = first(m.Header, hdrStatus)
	}
	if status == "" {
		if !f.take(ctx, m) {
			return false, ctx.Err()
		}
		p.left--
		return p.left == 0, nil
	}
	if status == "100" || m.Subject != p.inbox+strconv.Itoa(p.number) {
		return false, nil // heartbeat, or the end of an older request
	}
	desc := first(m.Header, hdrDescription)
	switch {
	case status == "408", status == "404", status == "409" && strings.EqualFold(desc, "Batch Completed"):
		return true, nil
	}
	return false, fmt.Errorf("the server ended the pull request: %s %s", status, desc)
}

// take decodes a message and hands it over. It returns false when ctx ended.
func (f *feeder) take(ctx context.Context, m *nats.Msg) bool {
	mt, ok := parseMeta(m.Reply)
	if !ok {
		f.stats.Dropped.Add(1)
		f.log.Error("message with an unknown reply subject dropped", "stream", f.in.cfg.Stream, "subject", m.Subject, "reply", m.Reply)
		return true
	}
	switch f.in.arrive(mt, m.Reply) {
	case arrivalInHand:
		f.stats.Repeated.Add(1)
		return true
	case arrivalAcked:
		f.stats.Repeated.Add(1)
		_ = f.nc.Publish(m.Reply, ackBody)
		return true
	case arrivalNew:
	}
	if f.in.cfg.Policy != streams.NoAck {
		f.stats.Held.Add(1)
	}
	d := decode(m, mt)
	d.in = f.in
	return f.hand(ctx, d)
}

func (f *feeder) hand(ctx context.Context, d delivery) bool {
	select {
	case f.inbox <- d:
	default:
		select {
		case f.inbox <- d:
		case <-ctx.Done():
			return false
		}
	}
	f.stats.Inbox.Add(1)
	return true
}

// decode turns a NATS message into a delivery; errors stay with it because the
// runner answers for them in order.
func decode(m *nats.Msg, mt meta) delivery {
	var d delivery
	d.msg, d.err = schemas.DecodeMsg(m.Subject, m.Data)
	if d.err != nil {
		d.msg = schemas.Msg{Subject: m.Subject}
		d.body = m.Data
	}
	d.msg.Seq, d.msg.At, d.msg.Redelivered = mt.seq, mt.at, mt.delivered > 1
	d.msg.Trace = traceOf(m.Header)
	return d
}
