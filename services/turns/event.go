package turns

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
)

// EventRequest is what an agent says of a branch without asking for tokens.
type EventRequest struct {
	Tenant  string // default when empty
	Session string
	Kind    schemas.EventKind // every kind but turn
	Branch  string            // main when empty
	Parent  string            // branch_fork: where the branch forks from
	Tool    string            // tool_wait: what is waited for, at most 256 bytes
	// Expected is how long the wait will take, as far as the caller knows; 0 when
	// it does not.
	Expected time.Duration
	Turn     string // cancel: the turn to stop
	Reason   string // at most 1,024 bytes
	// ID makes a repeat of the same event harmless within the stream's window of
	// message ids (2 min). Without it each call is an event of its own; a repeat
	// inside one call never is.
	ID    string
	Trace schemas.Trace
}

// Event publishes an event and returns its stream sequence when it is stored.
// Events of one session take effect in the order of their sequences, relative to
// its turns too. The wait for NATS is bounded by ctx and Options.Deadline; errors
// are those of Publish.
func (c *Client) Event(ctx context.Context, req EventRequest) (seq uint64, err error) {
	if req.Tenant == "" {
		req.Tenant = schemas.DefaultTenant
	}
	msg, err := eventMessage(&req)
	if err != nil {
		return 0, err
	}
	sent := func(error) {}
	if c.opts.Span != nil {
		req.Trace, sent = c.opts.Span(req.Trace, msg.Subject, msg.Header.Get(jetstream.MsgIDHeader), len(msg.Data))
	}
	setTrace(msg.Header, req.Trace)
	ack, err := c.send(ctx, msg, time.Now().Add(c.opts.Deadline))
	sent(err)
	return ack.Seq, err
}

// eventMessage checks an event and encodes it.
func eventMessage(req *EventRequest) (*nats.Msg, error) {
	id := req.ID
	if id == "" {
		id = NewID("e") // a publish that is sent again is still one event
	}
	for _, f := range [...]struct{ name, v string }{{"tenant", req.Tenant}, {"session", req.Session}, {"id", id}} {
		if err := schemas.CheckID(f.name, f.v); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	if !eventKinds[req.Kind] {
		return nil, &FieldError{Param: "kind", Message: fmt.Sprintf("kind is %q, known are %s", req.Kind, eventNames)}
	}
	if req.Kind == schemas.EventCancel && req.Turn == "" {
		return nil, &FieldError{Param: "turn", Message: "turn is missing: a cancel names the turn to stop"}
	}
	b, err := schemas.Encode(&schemas.Event{
		Header: schemas.H(), Branch: req.Branch, Turn: req.Turn, Parent: req.Parent,
		Tool: req.Tool, ExpectedNS: int64(req.Expected), Reason: req.Reason,
	})
	if err != nil {
		return nil, checkError(err)
	}
	return &nats.Msg{
		Subject: schemas.AgentSubject(req.Tenant, req.Session, req.Kind), Data: b,
		Header: nats.Header{jetstream.MsgIDHeader: {req.Tenant + "/" + req.Session + "/" + id + ":" + string(req.Kind)}},
	}, nil
}

// eventKinds are the kinds that Event takes.
var eventKinds = map[schemas.EventKind]bool{
	schemas.EventCancel: true, schemas.EventToolWait: true, schemas.EventUserWait: true,
	schemas.EventBranchFork: true, schemas.EventBranchEnd: true, schemas.EventCompacted: true,
	schemas.EventPrefixRewrite: true, schemas.EventSessionEnd: true,
}

const eventNames = "cancel, tool_wait, user_wait, branch_fork, branch_end, compacted, prefix_rewrite, session_end"
