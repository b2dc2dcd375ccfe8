package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// asker answers what a job needs from the bus before it can be opened.
type asker struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	cell string

	mu      sync.Mutex
	streams map[string]jetstream.Stream
}

func newAsker(nc *nats.Conn, cell string) (*asker, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return &asker{nc: nc, js: js, cell: cell, streams: map[string]jetstream.Stream{}}, nil
}

func (a *asker) do(ctx context.Context, op *schemas.Op) schemas.OpDone {
	// Longer than an outage of NATS that is worth waiting for; the router would
	// otherwise place the job again into the same outage.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	d := schemas.OpDone{ID: op.ID}
	start := time.Now()
	var err error
	if op.Tokens != nil {
		d.Tokens, err = a.tokens(ctx, op.Tokens)
	} else {
		d.Delivered, err = a.delivered(ctx, op.Delivered)
	}
	d.TookNS = time.Since(start).Nanoseconds()
	if err != nil {
		d.Err = err.Error()
	}
	return d
}

// tokensPage keeps a reply below the largest message.
const tokensPage = 100_000

// tokens asks lineage for a range of a prompt, in pages.
func (a *asker) tokens(ctx context.Context, q *schemas.TokensRequest) (*schemas.TokensReply, error) {
	all := &schemas.TokensReply{Header: schemas.H(), From: q.From}
	for at := q.From; at < q.To; {
		page := *q
		page.From, page.To = at, min(q.To, at+tokensPage)
		body, err := schemas.Encode(&page)
		if err != nil {
			return nil, err
		}
		m, err := a.request(ctx, schemas.TokensSubject(a.cell), body)
		if err != nil {
			return nil, fmt.Errorf("asking lineage for tokens: %w", err)
		}
		var r schemas.TokensReply
		if err := schemas.Decode(m.Data, &r); err != nil {
			return nil, err
		}
		if r.Error != "" || len(r.Tokens) == 0 {
			all.Error = r.Error
			return all, nil
		}
		all.Tokens = append(all.Tokens, r.Tokens...)
		at += len(r.Tokens)
	}
	return all, nil
}

// request repeats while nobody answers: lineage may be starting again.
func (a *asker) request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		m, err := a.nc.RequestWithContext(try, subject, body)
		cancel()
		if err == nil || ctx.Err() != nil {
			return m, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// delivered collects the tokens of a turn that a caller may have seen: the longer of
// its frames and its checkpoint. The questions are asked side by side, because the
// turn's reader waits for the answer.
func (a *asker) delivered(ctx context.Context, q *schemas.DeliveredOp) (*schemas.DeliveredDone, error) {
	var result, ckpt, out []byte
	var errs [3]error
	var wg sync.WaitGroup
	wg.Go(func() {
		result, errs[0] = a.last(ctx, streams.Result, schemas.ResultSubject(q.Tenant, q.Session, q.Turn))
	})
	wg.Go(func() { ckpt, errs[1] = a.last(ctx, streams.Ckpt, schemas.CkptSubject(q.Tenant, q.Session, q.Turn)) })
	wg.Go(func() { out, errs[2] = a.last(ctx, streams.Out, schemas.OutSubject(q.Tenant, q.Session, q.Turn)) })
	wg.Wait()
	if errors.Is(errs[2], jetstream.ErrStreamNotFound) {
		errs[2] = nil // NATS started again without it
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if result != nil {
		return &schemas.DeliveredDone{Finished: true}, nil
	}
	d := &schemas.DeliveredDone{}
	if ckpt != nil {
		var c schemas.Checkpoint
		if err := schemas.Decode(ckpt, &c); err != nil {
			return nil, err
		}
		d.Tokens = c.Tokens
	}
	var f schemas.Frame
	if out == nil || schemas.Decode(out, &f) == nil && f.Reject == nil && f.First+len(f.Tokens) <= len(d.Tokens) {
		return d, nil // a turn that was handed over: the checkpoint holds it all
	}
	return d, a.frames(ctx, q, d)
}

func (a *asker) last(ctx context.Context, stream, subject string) ([]byte, error) {
	s, err := a.stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// stream finds a stream. Once found it is not looked up again: a stream in memory that
// is made anew has the same name, and that is all that is asked by.
func (a *asker) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	a.mu.Lock()
	s := a.streams[name]
	a.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := a.js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams[name] = s
	return s, nil
}

// frames extends d by what OUT holds. Frames behind a gap are left out: the
// engine computes the same tokens again.
func (a *asker) frames(ctx context.Context, q *schemas.DeliveredOp, d *schemas.DeliveredDone) error {
	s, err := a.stream(ctx, streams.Out)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // NATS started again without it
	}
	if err != nil {
		return err
	}
	subject := schemas.OutSubject(q.Tenant, q.Session, q.Turn)
	for seq := uint64(1); ; {
		m, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		seq = m.Sequence + 1
		var f schemas.Frame
		if schemas.Decode(m.Data, &f) != nil || f.Reject != nil {
			continue
		}
		if have := len(d.Tokens); f.First <= have && f.First+len(f.Tokens) > have {
			d.Tokens = append(d.Tokens, f.Tokens[have-f.First:]...)
		}
	}
}
