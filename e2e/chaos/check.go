package chaos

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
)

// judge reads a turn's stream and compares it with the run without faults.
func (r *run) judge(ctx context.Context, ref turns.Ref, p *prompt, f *flight, s *turns.Stream) {
	var got schemas.Tokens
	dup := 0
	res, err := turns.Collect(ctx, s, func(e *turns.Event) error {
		f.mu.Lock()
		now := time.Now()
		f.last, f.over = now, e.Result != nil
		f.mu.Unlock()
		if e.Result != nil || len(e.Tokens) == 0 {
			return nil
		}
		if e.First == 0 {
			select {
			case r.firsts <- now:
			default:
			}
		}
		if e.First < len(got) {
			dup += len(got) - e.First
		}
		if e.First > len(got) {
			r.problem("turn %s: gap before token %d, %d seen", ref.Turn, e.First, len(got))
		}
		got = append(got[:min(e.First, len(got))], e.Tokens...)
		return nil
	})
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Turns++
	r.report.Duplicated += dup
	switch {
	case err != nil:
		r.report.Lost++
		r.report.Problems = append(r.report.Problems, "turn "+ref.Turn+": "+err.Error())
		return
	case res.Status != schemas.StatusOK:
		r.report.Lost++
		r.report.Problems = append(r.report.Problems, "turn "+ref.Turn+" failed: "+res.Failure.Code+": "+res.Failure.Message)
		return
	}
	if !slices.Equal(got, res.Tokens) {
		r.report.Problems = append(r.report.Problems, "turn "+ref.Turn+": the stream and the result differ")
		r.report.Changed++
	}
	for i, t := range p.want {
		if i >= len(res.Tokens) || res.Tokens[i] != t {
			r.report.Changed += max(len(p.want), len(res.Tokens)) - i
			r.report.Problems = append(r.report.Problems, "turn "+ref.Turn+": other tokens than without faults")
			break
		}
	}
}

// results counts what RESULT stored, by subject. The stream itself keeps only
// the last message of a subject, so they are counted as they are stored.
type results struct {
	nc   *nats.Conn
	stop func()
	mu   sync.Mutex
	n    map[string]int
}

func countResults(ctx context.Context, url string) (*results, error) {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	cons, err := js.OrderedConsumer(ctx, streams.Result, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return nil, err
	}
	c := &results{nc: nc, n: map[string]int{}}
	cc, err := cons.Consume(func(m jetstream.Msg) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n[m.Subject()]++
	})
	if err != nil {
		return nil, err
	}
	c.stop = cc.Stop
	return c, nil
}

func (c *results) close() {
	c.stop()
	c.nc.Close()
}

// check compares the number of stored results with the number of turns.
func (r *run) check(_ context.Context, c *results) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for subject, n := range c.n {
		if n > 1 {
			r.report.Duplicated += n - 1
			r.report.Problems = append(r.report.Problems, subject+" was stored more than once")
		}
	}
	return nil
}
