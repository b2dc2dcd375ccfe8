package turns

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams/jsrun"
)

// Request is a turn to publish.
type Request struct {
	Tenant  string // default when empty
	Session string
	// Turn is not changed. An id is drawn when it has none.
	Turn  *schemas.Turn
	Trace schemas.Trace
}

// Publish publishes a turn and returns when it is stored. From then on the turn
// has exactly one result, which the stream yields. The same turn published again
// within the retention of its result yields the same answer.
func (c *Client) Publish(ctx context.Context, req Request) (*Stream, error) {
	if req.Turn == nil {
		return nil, fmt.Errorf("%w: Turn is nil", ErrInvalid)
	}
	if req.Tenant == "" {
		req.Tenant = schemas.DefaultTenant
	}
	turn := *req.Turn
	drawn := turn.Weir.Turn == ""
	if drawn {
		turn.Weir.Turn = NewID("t")
	}
	ref := Ref{Tenant: req.Tenant, Session: req.Session, Turn: turn.Weir.Turn}
	if err := ref.check(); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(c.opts.Deadline)
	if d := turn.Weir.DeadlineNS; d > 0 {
		deadline = time.Unix(0, d)
		if late := time.Since(deadline); late >= 0 {
			return nil, &FailureError{Failure: schemas.Failure{
				Code: schemas.CodeDeadline, Param: "weir.deadline_ns", Message: fmt.Sprintf("the deadline passed %s ago", late.Round(time.Millisecond)),
			}}
		}
	}
	if err := c.putMedia(ctx, &turn); err != nil {
		return nil, err
	}
	msg, digest, err := c.encode(ctx, ref, &turn)
	if err != nil {
		return nil, err
	}
	sent := func(error) {}
	if c.opts.Span != nil {
		req.Trace, sent = c.opts.Span(req.Trace, msg.Subject, msg.Header.Get(jetstream.MsgIDHeader), len(msg.Data))
	}
	setTrace(msg.Header, req.Trace)
	s := newStream(c, ref, Position{})
	s.digest = digest
	if err := c.hub.add(s); err != nil {
		sent(err)
		return nil, err
	}
	// A turn with that id may exist. Then what arrives may be the answer to other
	// content, and lineage's word on this publish must be waited for.
	seen := !drawn && c.exists(ctx, ref)
	ack, err := c.store(ctx, ref, msg, deadline)
	sent(err)
	if err != nil {
		s.Close()
		if drawn {
			// An answer may have been lost after the turn was stored. Nobody else
			// knows its id, so nobody waits for it.
			c.abandon(ref, "the caller gave up before the turn was acknowledged")
		}
		return nil, err
	}
	switch {
	case ack.Duplicate:
		s.lost.Store(true)
	case seen:
		s.hold = time.Now().Add(rejectGrace)
		s.alarm.Reset(rejectGrace)
	}
	return s, nil
}

// store sends a turn until it is stored.
func (c *Client) store(ctx context.Context, ref Ref, msg *nats.Msg, deadline time.Time) (pubAck, error) {
	ack, err := c.send(ctx, msg, deadline)
	if err == nil && ack.Duplicate && c.erased(ctx, ref, ack.Seq) {
		// The session was erased within the server's memory of message ids, which took
		// this turn of the new life for the old one.
		msg.Header[jetstream.MsgIDHeader][0] += ":" + nuid.Next()
		return c.send(ctx, msg, deadline)
	}
	return ack, err
}

// NewID draws an id that no other turn or session has: prefix, "-", 22 characters.
func NewID(prefix string) string { return prefix + "-" + nuid.Next() }

// encode makes the message of a turn. The digest is that of the whole turn also
// when its body travels apart.
func (c *Client) encode(ctx context.Context, ref Ref, turn *schemas.Turn) (*nats.Msg, string, error) {
	if err := turn.Check(); err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if turn.BodyRef != nil || turn.Weir.Digest != "" {
		return nil, "", fmt.Errorf("%w: body_ref and weir.digest are set when a turn is published", ErrInvalid)
	}
	b, err := json.Marshal(turn)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	sum := sha256.Sum256(b)
	digest := hex.EncodeToString(sum[:])
	if len(b) > schemas.PayloadThreshold {
		if b, err = c.apart(ctx, turn, digest, len(b)); err != nil {
			return nil, "", err
		}
	}
	h := make(nats.Header, 3)
	h[jetstream.MsgIDHeader] = []string{ref.Tenant + "/" + ref.Session + "/" + ref.Turn + ":" + digest}
	return &nats.Msg{Subject: schemas.AgentSubject(ref.Tenant, ref.Session, schemas.EventTurn), Header: h, Data: b}, digest, nil
}

// apart moves the body into the payload bucket and returns the message that
// refers to it.
func (c *Client) apart(ctx context.Context, turn *schemas.Turn, digest string, size int) ([]byte, error) {
	if size > schemas.MaxBody {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, schemas.MaxBody)
	}
	meta, body := turn.Weir, turn.Body
	if len(meta.InputTokens) > 0 && len(body.Prompt) == 0 && len(body.Messages) == 0 {
		// A prompt of token ids means the same and travels in the body.
		p, err := meta.InputTokens.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		body.Prompt, meta.InputTokens = p, nil
	}
	b, err := json.Marshal(&body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p, err := c.bucket(ctx)
	if err != nil {
		return nil, err
	}
	ref, err := p.Put(ctx, b)
	switch {
	case errors.Is(err, jsrun.ErrFull):
		return nil, &BusyError{RetryAfter: retryFull, Reason: "the store for large bodies is full"}
	case errors.Is(err, schemas.ErrTooLarge):
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return nil, fmt.Errorf("%w: storing a body of %d bytes: %w", ErrUnavailable, len(b), err)
	}
	meta.Digest = digest
	out, err := schemas.Encode(&schemas.Turn{Weir: meta, BodyRef: &ref})
	if errors.Is(err, schemas.ErrTooLarge) {
		return nil, fmt.Errorf("%w: weir.force_output or weir.input_tokens leave a message of %w", ErrTooLarge, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return out, nil
}

func (c *Client) bucket(ctx context.Context) (*jsrun.Payloads, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.payloads != nil {
		return c.payloads, nil
	}
	js, err := jetstream.New(c.nc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	p, err := jsrun.NewPayloads(ctx, js, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c.payloads = p
	return p, nil
}

func setTrace(h nats.Header, t schemas.Trace) {
	if t.Parent != "" {
		h["traceparent"] = []string{t.Parent}
	}
	if t.State != "" {
		h["tracestate"] = []string{t.State}
	}
}
