package badinput

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Ledger holds which turns were acknowledged and which results are stored. It reads
// the stream itself: a plain subscription also hears of results that the stream
// refused.
type Ledger struct {
	bus    *Bus
	acked  []string // result subjects, in order
	stored map[string]int
	failed map[string]schemas.Failure
	next   uint64 // sequence of RESULT
}

// NewLedger begins with no turns.
func NewLedger(b *Bus) *Ledger {
	return &Ledger{bus: b, stored: map[string]int{}, failed: map[string]schemas.Failure{}, next: 1}
}

// Publish publishes a turn in a session of its own. Without an error it was
// acknowledged and is owed exactly one result.
func (l *Ledger) Publish(ctx context.Context, body []byte) error {
	session := NewSession()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	ack, err := l.bus.JS.Publish(ctx, schemas.AgentSubject(schemas.DefaultTenant, session, schemas.EventTurn), body, jetstream.WithRetryAttempts(0))
	if err != nil {
		return err
	}
	l.acked = append(l.acked, schemas.ResultSubject(schemas.DefaultTenant, session, "t"+strconv.FormatUint(ack.Sequence, 10)))
	return nil
}

// Acked is the number of acknowledged turns.
func (l *Ledger) Acked() int { return len(l.acked) }

// read notes the results that came to the stream since the last call.
func (l *Ledger) read(ctx context.Context) error {
	s, err := l.bus.JS.Stream(ctx, streams.Result)
	if err != nil {
		return err
	}
	for {
		m, err := s.GetMsg(ctx, l.next, jetstream.WithGetMsgSubject("result.>"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		l.next = m.Sequence + 1
		l.stored[m.Subject]++
		r := new(schemas.Result)
		if err := schemas.Decode(m.Data, r); err != nil {
			return err
		}
		if r.Failure != nil {
			l.failed[m.Subject] = *r.Failure
		}
	}
}

// missing are the acknowledged turns that have no result yet.
func (l *Ledger) missing() int {
	n := 0
	for _, s := range l.acked {
		if l.stored[s] == 0 {
			n++
		}
	}
	return n
}

// pollEvery is the pause between looks at a stream, which nothing announces when
// the stream itself is in trouble.
const pollEvery = 100 * time.Millisecond

// Wait waits until every acknowledged turn has a result. step, when not nil, is
// called after each look with the number that is missing.
func (l *Ledger) Wait(ctx context.Context, step func(missing int) error) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		err := l.read(ctx)
		n := l.missing()
		if err == nil && n == 0 {
			return nil
		}
		if err == nil && step != nil {
			err = step(n)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d acknowledged turns have no result: %w", n, len(l.acked), errors.Join(context.Cause(ctx), err))
		}
	}
}

// forget purges the results that were read, as an operator who makes room.
func (l *Ledger) forget(ctx context.Context) error {
	s, err := l.bus.JS.Stream(ctx, streams.Result)
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSequence(l.next))
}

// Lost lists the acknowledged turns without exactly one good result, and why.
func (l *Ledger) Lost() []string {
	var out []string
	for _, s := range l.acked {
		f, failed := l.failed[s]
		switch n := l.stored[s]; {
		case n != 1:
			out = append(out, fmt.Sprintf("%s has %d results", s, n))
		case failed:
			out = append(out, fmt.Sprintf("%s failed: %s: %s", s, f.Code, f.Message))
		}
	}
	slices.Sort(out)
	return out
}

// tokens is a turn of n prompt tokens and most generated ones.
func tokens(n, most int) []byte { return tokensFrom(1, n, most) }

// tokensFrom is the same; its prompt begins with another token.
func tokensFrom(first, n, most int) []byte {
	return fmt.Appendf(nil, `{"weir":{"ignore_eos":true,"input_tokens":[%d%s]},"max_tokens":%d}`, first, strings.Repeat(",1", n-1), most)
}
