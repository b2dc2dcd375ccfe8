package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tokenizer"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// local does lineage's operations outside the bus.
type local struct {
	ctx      context.Context //nolint:containedctx // lives as long as the service that owns it
	cfg      Config
	js       jetstream.JetStream
	render   *tokenizer.Renderer
	payloads *jsrun.Payloads
	renders  *workers // Render
	reads    *workers // Lookup and Fetch
}

const (
	// renderers is the number of goroutines that render at once; rendering is pure
	// computing, so more than the cores gain nothing.
	renderers = 2
	// readers wait for NATS most of the time. They are apart from the renderers, so
	// that neither a bus that is away nor long prompts hold up the other.
	readers = 16
)

func newLocal(ctx context.Context, cfg Config, js jetstream.JetStream, r *tokenizer.Renderer) (*local, error) {
	p, err := jsrun.NewPayloads(ctx, js, schemas.MaxBody)
	if err != nil {
		return nil, err
	}
	l := &local{
		ctx: ctx, cfg: cfg, js: js, render: r, payloads: p, renders: newWorkers("rendering"), reads: newWorkers("reading from NATS"),
	}
	l.renders.run(ctx, renderers)
	l.reads.run(ctx, readers)
	return l, nil
}

// do starts an operation. It never blocks the actor: when the queue is full the
// operation ends at once with CodeBusy.
func (l *local) do(op *schemas.Op, done func(schemas.OpDone)) {
	w := l.reads
	if op.Render != nil {
		w = l.renders
	}
	if !w.take(func() { start := time.Now(); l.end(op, start, l.one(op), done) }) {
		l.end(op, time.Now(), schemas.OpDone{
			Err: fmt.Sprintf("the queue for %s is full, %d operations wait; try again later", w.kind, queueMax), Code: schemas.CodeBusy,
		}, done)
	}
}

// end completes an operation that began at start.
func (l *local) end(op *schemas.Op, start time.Time, d schemas.OpDone, done func(schemas.OpDone)) {
	d.ID, d.TookNS = op.ID, time.Since(start).Nanoseconds()
	if l.cfg.OnOp != nil {
		l.cfg.OnOp("lineage", op, start, &d)
	}
	done(d)
}

func (l *local) one(op *schemas.Op) schemas.OpDone {
	var d schemas.OpDone
	var err error
	switch {
	case op.Render != nil && l.render != nil:
		d.Render = &schemas.RenderDone{Reply: l.render.Render(&op.Render.Request)}
	case op.Render != nil:
		d.Render, err = l.remote(op.Render, op.Trace)
	case op.Lookup != nil:
		d.Lookup, err = l.lookup(op.Lookup)
	case op.Fetch != nil:
		d.Fetch, err = l.fetch(op.Fetch)
	default:
		err = fmt.Errorf("lineage has no operation of this kind")
	}
	if err != nil {
		d.Err = err.Error()
	}
	return d
}

// remote asks the tokenizer service.
func (l *local) remote(op *schemas.RenderOp, trace schemas.Trace) (*schemas.RenderDone, error) {
	body, err := tokenizer.Pack(&op.Request)
	if errors.Is(err, schemas.ErrTooLarge) {
		return &schemas.RenderDone{Reply: schemas.RenderReply{Header: schemas.H(), Failure: &schemas.Failure{
			Code: schemas.CodeTooLong, Param: "messages", Message: fmt.Sprintf("messages and tools are too large for the tokenizer service: %s; shorten them or run it within the control process", err),
		}}}, nil
	}
	if err != nil {
		return nil, err
	}
	msg := &nats.Msg{Subject: tokenizer.Subject(op.Model), Data: body}
	if trace.Parent != "" {
		msg.Header = nats.Header{"traceparent": {trace.Parent}}
	}
	ctx, cancel := context.WithTimeout(l.ctx, 30*time.Second)
	defer cancel()
	for {
		try, stop := context.WithTimeout(ctx, 10*time.Second)
		m, err := l.cfg.Conn.RequestMsgWithContext(try, msg)
		stop()
		if err == nil {
			var r schemas.RenderReply
			if err := tokenizer.Unpack(m.Data, &r); err != nil {
				return nil, err
			}
			return &schemas.RenderDone{Reply: r}, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the tokenizer of model %s does not answer: %w", op.Model, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lookup finds what an earlier life of the service did with a turn.
func (l *local) lookup(op *schemas.LookupOp) (*schemas.LookupDone, error) {
	ctx, cancel := context.WithTimeout(l.ctx, outageMax)
	defer cancel()
	d := &schemas.LookupDone{}
	// READY first: a turn that ends in between is then found in RESULT.
	ready, err := l.last(ctx, streams.Ready, schemas.ReadySubject(l.cfg.Cell, op.Tenant, op.Session, op.Turn))
	if err != nil {
		return nil, err
	}
	result, err := l.last(ctx, streams.Result, schemas.ResultSubject(op.Tenant, op.Session, op.Turn))
	if err != nil {
		return nil, err
	}
	if result != nil {
		d.Result = &schemas.Result{}
		return d, schemas.Decode(result, d.Result)
	}
	if d.Ready = ready != nil; d.Ready {
		var r schemas.Ready
		if err := schemas.Decode(ready, &r); err != nil {
			return nil, err
		}
		d.Branch = r.Branch
	}
	return d, nil
}

// outageMax bounds how long an operation waits for NATS to come back: longer than
// any turn may take by default, because what was acknowledged is not given up.
const outageMax = 15 * time.Minute

func (l *local) last(ctx context.Context, stream, subject string) ([]byte, error) {
	for {
		s, err := l.js.Stream(ctx, stream)
		if err == nil {
			var m *jetstream.RawStreamMsg
			if m, err = s.GetLastMsgForSubject(ctx, subject); err == nil {
				return m.Data, nil
			}
		}
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, nil
		}
		select { // NATS is away; the turn is not given up for that
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// payload repeats while NATS is away.
func (l *local) payload(ctx context.Context, ref schemas.PayloadRef) ([]byte, error) {
	for {
		try, stop := context.WithTimeout(ctx, 30*time.Second)
		body, err := l.payloads.Get(try, ref)
		stop()
		if err == nil || errors.Is(err, jsrun.ErrPayload) || errors.Is(err, schemas.ErrTooLarge) {
			return body, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// fetch reads a large turn from the payload bucket.
func (l *local) fetch(op *schemas.FetchOp) (*schemas.FetchDone, error) {
	ctx, cancel := context.WithTimeout(l.ctx, outageMax)
	defer cancel()
	body, err := l.payload(ctx, op.Ref)
	if errors.Is(err, jsrun.ErrPayload) || errors.Is(err, schemas.ErrTooLarge) {
		return &schemas.FetchDone{Failure: &schemas.Failure{Code: schemas.CodeInvalid, Param: "body_ref", Message: err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	t := &schemas.Turn{}
	if err := schemas.DecodeBody(body, t); err != nil {
		return &schemas.FetchDone{Failure: &schemas.Failure{Code: schemas.CodeInvalid, Message: err.Error()}}, nil
	}
	return &schemas.FetchDone{Turn: t}, nil
}
