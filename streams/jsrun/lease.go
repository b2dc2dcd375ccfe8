package jsrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// LeaseConfig names a lease and who wants it.
type LeaseConfig struct {
	JS      jetstream.JetStream
	Cell    string
	Service string
	Holder  string        // an id of this life of the process, used by no other
	TTL     time.Duration // streams.LeaseTTL by default, at least 1 s
	Logger  *slog.Logger
}

// Lease is held until its context ends.
type Lease struct {
	// Epoch is the stream sequence of the message that took the lease. It grows
	// from holder to holder, also over restarts of NATS.
	Epoch uint64
	cfg   LeaseConfig
	seq   uint64
	ctx   context.Context
	stop  context.CancelCauseFunc
	done  chan struct{}
}

// Acquire waits until the lease is free and takes it, or returns when ctx ends.
// The lease renews itself three times per TTL until Release, until the context
// of Acquire ends, or until it is lost.
func Acquire(ctx context.Context, cfg LeaseConfig) (*Lease, error) {
	if cfg.TTL <= 0 {
		cfg.TTL = streams.LeaseTTL
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	for {
		l, err := TryAcquire(ctx, cfg)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, ErrHeld) {
			cfg.Logger.Warn("lease cannot be asked for", "cell", cfg.Cell, "service", cfg.Service, "error", err)
		}
		t := time.NewTimer(cfg.TTL / 6)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
	}
}

// TryAcquire takes the lease if it is free, and returns ErrHeld if it is not.
func TryAcquire(ctx context.Context, cfg LeaseConfig) (*Lease, error) {
	if cfg.TTL <= 0 {
		cfg.TTL = streams.LeaseTTL
	}
	if cfg.TTL < time.Second {
		return nil, fmt.Errorf("%w: a lease of %s, the server's shortest message TTL is 1 s", ErrConfig, cfg.TTL)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Lease{cfg: cfg, done: make(chan struct{})}
	seq, err := l.put(ctx, 0)
	if err != nil {
		if isConflict(err) {
			return nil, fmt.Errorf("%w: %s", ErrHeld, l.subject())
		}
		return nil, fmt.Errorf("jsrun: lease %s: %w", l.subject(), err)
	}
	l.Epoch, l.seq = seq, seq
	l.ctx, l.stop = context.WithCancelCause(ctx)
	go l.renew()
	return l, nil
}

// Context ends when the lease is not held any more; its cause is ErrLost when it
// was lost.
func (l *Lease) Context() context.Context { return l.ctx }

// Release gives the lease up, so that another can take it at once.
func (l *Lease) Release() {
	l.stop(context.Canceled)
	<-l.done
}

func (l *Lease) subject() string { return schemas.LeaseSubject(l.cfg.Cell, l.cfg.Service) }

// put writes the lease if the last message on its subject is the expected one.
func (l *Lease) put(ctx context.Context, expect uint64) (uint64, error) {
	body, err := schemas.Encode(&schemas.Lease{Header: schemas.H(), Holder: l.cfg.Holder, AtNS: time.Now().UnixNano()})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.TTL/3)
	defer cancel()
	ack, err := l.cfg.JS.PublishMsg(ctx, &nats.Msg{Subject: l.subject(), Data: body, Header: nats.Header{
		hdrExpectSubj: []string{strconv.FormatUint(expect, 10)},
		hdrTTL:        []string{strconv.FormatInt(int64(l.cfg.TTL/time.Second), 10)},
	}}, jetstream.WithRetryAttempts(1))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

func isConflict(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (int(api.ErrorCode) == codeWrongLast || int(api.ErrorCode) == codeWrongLastR)
}

// renew keeps the lease. It counts from the moment before each request and gives
// up a sixth of the TTL early, so this side believes in a shorter lease than the
// server does, whatever hangs.
func (l *Lease) renew() {
	defer close(l.done)
	limit := time.Now().Add(l.cfg.TTL * 5 / 6)
	tick := time.NewTicker(l.cfg.TTL / 3)
	defer tick.Stop()
	for {
		// A renewal on its way is not cut off by Release: erase must know the
		// sequence of the last one.
		ctx, cancel := context.WithDeadline(context.WithoutCancel(l.ctx), limit)
		select {
		case <-l.ctx.Done():
			cancel()
			l.erase()
			return
		case <-ctx.Done():
		case <-tick.C:
		}
		before := time.Now()
		seq, err := l.again(ctx)
		cancel()
		switch {
		case err == nil:
			l.seq, limit = seq, before.Add(l.cfg.TTL*5/6)
		case isConflict(err), !time.Now().Before(limit):
			l.cfg.Logger.Warn("lease lost", "subject", l.subject(), "error", err)
			l.stop(fmt.Errorf("%w: %s: %w", ErrLost, l.subject(), err))
			return
		}
	}
}

// again renews the lease once.
func (l *Lease) again(ctx context.Context) (uint64, error) {
	seq, err := l.put(ctx, l.seq)
	if err == nil {
		return seq, nil
	}
	// The answer to an earlier renewal may have been lost; then the last message
	// is ours.
	if s, mine := l.last(ctx); mine {
		return l.put(ctx, s)
	}
	return 0, err
}

// last reads the lease's last message and whether this holder wrote it.
func (l *Lease) last(ctx context.Context) (seq uint64, mine bool) {
	st, err := l.cfg.JS.Stream(ctx, streams.Lease)
	if err != nil {
		return 0, false
	}
	m, err := st.GetLastMsgForSubject(ctx, l.subject())
	if err != nil {
		return 0, false
	}
	var got schemas.Lease
	if schemas.Decode(m.Data, &got) != nil {
		return 0, false
	}
	return m.Sequence, got.Holder == l.cfg.Holder && m.Sequence > l.seq
}

// erase removes the lease if it is still ours; otherwise it ends by its TTL.
func (l *Lease) erase() {
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.TTL/3)
	defer cancel()
	st, err := l.cfg.JS.Stream(ctx, streams.Lease)
	if err != nil {
		return
	}
	_ = st.DeleteMsg(ctx, l.seq)
}
