package badinput

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
)

// Bus publishes raw messages, as an agent without weir's code does, and follows
// what comes of them.
type Bus struct {
	NC *nats.Conn
	JS jetstream.JetStream

	sub     *nats.Subscription
	mu      sync.Mutex
	dead    map[uint64]schemas.Dead // by sequence in AGENT
	changed chan struct{}           // closed and replaced at each dead letter
}

// NewBus connects to a stack's NATS.
func NewBus(s *stack.Stack) (*Bus, error) {
	nc, err := nats.Connect(s.Ready.NATS, nats.Name("e2e-badinput"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	b := &Bus{NC: nc, dead: map[uint64]schemas.Dead{}, changed: make(chan struct{})}
	if b.JS, err = jetstream.New(nc); err == nil {
		b.sub, err = nc.Subscribe("dead.>", b.died)
	}
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return b, nil
}

// Close ends the connection.
func (b *Bus) Close() { b.NC.Close() }

func (b *Bus) died(m *nats.Msg) {
	var d schemas.Dead
	if schemas.Decode(m.Data, &d) != nil {
		return // a test of package schemas holds dead letters readable
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead[d.Seq] = d
	close(b.changed)
	b.changed = make(chan struct{})
}

// Dead waits for the dead letter about a sequence of AGENT.
func (b *Bus) Dead(ctx context.Context, seq uint64) (schemas.Dead, error) {
	for {
		b.mu.Lock()
		d, ok := b.dead[seq]
		changed := b.changed
		b.mu.Unlock()
		if ok {
			return d, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return d, fmt.Errorf("no dead letter about message %d of AGENT: %w", seq, context.Cause(ctx))
		}
	}
}

func (b *Bus) deadNow(seq uint64) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dead[seq].Reason
}

// NewSession draws a session id.
func NewSession() string { return "bad-" + nuid.Next() }

// turn publishes a body as it is in a session of its own and waits for the result.
func (b *Bus) turn(ctx context.Context, body []byte, dead bool) Outcome {
	began := time.Now()
	o := Outcome{Way: "nats", Code: "none"}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	session := NewSession()
	results, err := b.Results(session)
	if err != nil {
		o.Text = err.Error()
		return o
	}
	defer func() { _ = results.Unsubscribe() }() // the connection ends soon
	ack, err := b.JS.Publish(ctx, schemas.AgentSubject(schemas.DefaultTenant, session, schemas.EventTurn), body)
	if err != nil {
		o.Code, o.Text = "refused", err.Error()
		return o
	}
	r, err := NextResult(ctx, results)
	o.Took = time.Since(began)
	if err != nil {
		o.Text = err.Error()
		return o
	}
	o.Code, o.Text = codeOf(r)
	if dead {
		d, err := b.Dead(ctx, ack.Sequence)
		if err != nil {
			o.Text += "; " + err.Error()
		}
		o.Dead = d.Reason
	} else {
		o.Dead = b.deadNow(ack.Sequence)
	}
	return o
}

func codeOf(r *schemas.Result) (code, text string) {
	if r.Failure != nil {
		return r.Failure.Code, r.Failure.Message
	}
	return Answered, r.Text
}

// Results subscribes to the results of a session.
func (b *Bus) Results(session string) (*nats.Subscription, error) {
	sub, err := b.NC.SubscribeSync(schemas.ResultSubject(schemas.DefaultTenant, session, "*"))
	if err != nil {
		return nil, err
	}
	return sub, b.NC.Flush()
}

// NextResult waits for a result.
func NextResult(ctx context.Context, sub *nats.Subscription) (*schemas.Result, error) {
	m, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("no result on %s: %w", sub.Subject, err)
	}
	r := new(schemas.Result)
	return r, schemas.Decode(m.Data, r)
}
