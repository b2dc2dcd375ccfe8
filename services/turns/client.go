package turns

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams/jsrun"
)

// Options tune a Client. The zero value is right for a gateway.
type Options struct {
	// Deadline bounds the wait for NATS at a publish when the turn has none of
	// its own. 10 min, as lineage's default for turns.
	Deadline time.Duration
	// AckTimeout is the wait for one acknowledgement of a publish. 5 s.
	AckTimeout time.Duration
	// BusyAfter is how long a publish is repeated while NATS is connected and
	// nobody takes it; then it is refused with ErrBusy. 10 s.
	BusyAfter time.Duration
	// Buffer is the number of messages that wait for a slow reader of one turn.
	// What does not fit is fetched again, so it costs time and no tokens. 128.
	Buffer int
	// Inbox is the number of messages of all turns that wait to be distributed. 32,768.
	Inbox int
	// IdleSessions bounds subscriptions kept for sessions without a turn in
	// work, because agents come back; each costs the server about 1 KiB. 4,096.
	IdleSessions int
	// IdleFor is how long such a subscription is kept. 60 s.
	IdleFor time.Duration
	// SilenceMin and SilenceMax: a stream that hears nothing looks for its result
	// after SilenceMin, then at doubling intervals up to SilenceMax. 2 s and 10 s.
	SilenceMin, SilenceMax time.Duration
	// Span, when set, begins the span of publishing a turn of that size in bytes,
	// a child of in when that is set. It returns the context for the message's
	// header and what ends the span.
	Span func(in schemas.Trace, subject, id string, size int) (schemas.Trace, func(error))
}

func (o *Options) defaults() {
	for _, d := range [...]struct {
		v *time.Duration
		d time.Duration
	}{
		{&o.Deadline, 10 * time.Minute},
		{&o.AckTimeout, 5 * time.Second},
		{&o.BusyAfter, 10 * time.Second},
		{&o.IdleFor, time.Minute},
		{&o.SilenceMin, 2 * time.Second},
		{&o.SilenceMax, 10 * time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	for _, n := range [...]struct {
		v *int
		d int
	}{{&o.Buffer, 128}, {&o.Inbox, 32768}, {&o.IdleSessions, 4096}} {
		if *n.v <= 0 {
			*n.v = n.d
		}
	}
}

// Client publishes turns and reads their answers over one connection. Its
// methods may be called from any goroutine.
type Client struct {
	nc   *nats.Conn
	opts Options
	hub  *hub

	mu       sync.Mutex
	payloads *jsrun.Payloads // opened at the first large body
}

// New makes a client. The connection stays the caller's; it should reconnect for
// ever, as jsrun.Connect sets it up.
func New(nc *nats.Conn, opts Options) (*Client, error) {
	if nc == nil || nc.IsClosed() {
		return nil, fmt.Errorf("%w: there is no connection", ErrUnavailable)
	}
	opts.defaults()
	return &Client{nc: nc, opts: opts, hub: newHub(nc, &opts)}, nil
}

// Close ends the subscriptions. Streams that are being read end with ErrClosed.
func (c *Client) Close() { c.hub.close() }

// Conn is the connection that the client uses.
func (c *Client) Conn() *nats.Conn { return c.nc }

// Ref names a turn.
type Ref struct{ Tenant, Session, Turn string }

func (r Ref) check() error {
	for _, f := range [...]struct{ name, v string }{{"tenant", r.Tenant}, {"session", r.Session}, {"turn", r.Turn}} {
		if err := schemas.CheckID(f.name, f.v); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

// Position is how far a caller has read: the index of the next token, and the
// number of bytes of text that it has.
type Position struct{ Index, TextAt int }

// Resume reads the answer of a turn that was published earlier, by whomever,
// from a position on. It returns at once; Next waits.
func (c *Client) Resume(ctx context.Context, ref Ref, from Position) (*Stream, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if from.Index < 0 || from.TextAt < 0 {
		return nil, fmt.Errorf("%w: position %+v is negative", ErrInvalid, from)
	}
	s := newStream(c, ref, from)
	if err := c.hub.add(s); err != nil {
		return nil, err
	}
	s.lost.Store(true) // what was sent before is fetched first
	return s, nil
}

// Result returns the stored result of a turn, or ErrNotFound.
func (c *Client) Result(ctx context.Context, ref Ref) (*schemas.Result, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	return c.storedResult(ctx, ref)
}

// Cancel asks that a turn be stopped. It returns when the wish is stored; the
// turn then ends with the code cancelled, unless it ended before.
func (c *Client) Cancel(ctx context.Context, ref Ref, reason string) error {
	if err := ref.check(); err != nil {
		return err
	}
	if len(reason) > 1024 {
		reason = reason[:1024]
	}
	b, err := schemas.Encode(&schemas.Event{Header: schemas.H(), Turn: ref.Turn, Reason: reason})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	msg := &nats.Msg{
		Subject: schemas.AgentSubject(ref.Tenant, ref.Session, schemas.EventCancel), Data: b,
		Header: nats.Header{jetstream.MsgIDHeader: {ref.Tenant + "/" + ref.Session + "/" + ref.Turn + ":" + NewID("cancel")}},
	}
	_, err = c.send(ctx, msg, time.Now().Add(c.opts.Deadline))
	return err
}
