package turns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
)

// Waits that are told to callers. A full stream drains as fast as turns are
// answered or age out; a stream without a leader comes back within seconds.
const (
	retryFull = 5 * time.Second
	retrySoon = 2 * time.Second
)

// Pauses between repeats of a publish that nobody took.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// pubAck is JetStream's answer to a publish.
type pubAck struct {
	Seq       uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
	Error     *struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

// JetStream's error codes that mean that there is no room.
const (
	codeAccountLimit = 10002
	codeInsufficient = 10023
	codeMemoryLimit  = 10028
	codeStorageLimit = 10047
	codeTooLarge     = 10054
	codeStoreFailed  = 10077
	codeTooMany      = 10167
)

// send publishes until the message is stored. It is sent again, under the same
// id, when no answer comes; while NATS is away it waits for it until the deadline.
func (c *Client) send(ctx context.Context, msg *nats.Msg, deadline time.Time) (pubAck, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var refused time.Duration // time spent while connected
	last := "no answer"
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		change := c.hub.connChange()
		if !c.nc.IsConnected() {
			if c.nc.IsClosed() {
				return pubAck{}, fmt.Errorf("%w: the connection is closed", ErrUnavailable)
			}
			select {
			case <-change:
				continue
			case <-ctx.Done():
				return pubAck{}, away(ctx, deadline)
			}
		}
		began := time.Now()
		ack, err := c.try(ctx, msg)
		switch {
		case err == nil:
			return ack, nil
		case !errors.Is(err, errAgain):
			return pubAck{}, err
		case ctx.Err() != nil:
			return pubAck{}, away(ctx, deadline)
		}
		last = err.Error()
		if c.nc.IsConnected() {
			refused += time.Since(began) + pause
		}
		if refused > c.opts.BusyAfter {
			return pubAck{}, &BusyError{RetryAfter: retrySoon, Reason: last}
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-change:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// errAgain marks answers after which the publish is repeated.
var errAgain = errors.New("the publish was not acknowledged")

// try publishes once and reads the answer.
func (c *Client) try(ctx context.Context, msg *nats.Msg) (pubAck, error) {
	tctx, cancel := context.WithTimeout(ctx, c.opts.AckTimeout)
	defer cancel()
	defer c.hub.trying(cancel)()
	m, err := c.nc.RequestMsgWithContext(tctx, msg)
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return pubAck{}, fmt.Errorf("%w: the server takes %d bytes per message", ErrTooLarge, c.nc.MaxPayload())
	case errors.Is(err, nats.ErrNoResponders):
		return pubAck{}, fmt.Errorf("%w: no stream takes %s; is weir running on this NATS?", errAgain, msg.Subject)
	case err != nil:
		return pubAck{}, fmt.Errorf("%w: %w", errAgain, err)
	}
	var a pubAck
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return pubAck{}, fmt.Errorf("%w: unreadable answer: %w", errAgain, err)
	}
	e := a.Error
	if e == nil {
		if a.Seq == 0 {
			return pubAck{}, fmt.Errorf("%w: an answer without a sequence", errAgain)
		}
		return a, nil
	}
	switch e.ErrCode {
	case codeAccountLimit, codeInsufficient, codeMemoryLimit, codeStorageLimit, codeStoreFailed, codeTooMany:
		return pubAck{}, &BusyError{RetryAfter: retryFull, Reason: "the stream of turns is full (" + e.Description + ")"}
	case codeTooLarge:
		return pubAck{}, fmt.Errorf("%w: %s", ErrTooLarge, e.Description)
	}
	if e.Code == 503 || e.Code == 429 || e.Code == 408 || e.Code == 500 {
		return pubAck{}, fmt.Errorf("%w: %s", errAgain, e.Description)
	}
	return pubAck{}, fmt.Errorf("%w: JetStream refuses %s: %s", ErrUnavailable, msg.Subject, e.Description)
}

// away says why the wait for NATS ended.
func away(ctx context.Context, deadline time.Time) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return fmt.Errorf("%w: no acknowledgement until the deadline (%s); is the server running?", ErrUnavailable, deadline.UTC().Format(time.RFC3339))
}

// abandon asks, without waiting, that a turn be stopped whose publish may have
// been stored although no answer came.
func (c *Client) abandon(ref Ref, reason string) {
	b, err := schemas.Encode(&schemas.Event{Header: schemas.H(), Turn: ref.Turn, Reason: reason})
	if err == nil {
		// Nothing can be done about a failure here: the caller has its error.
		_ = c.nc.Publish(schemas.AgentSubject(ref.Tenant, ref.Session, schemas.EventCancel), b)
	}
}
