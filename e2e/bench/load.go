// Package bench measures weir against itself and against physical limits, as
// ratios taken in one run. Read load.go (many turns at once), then the file of the
// figure that interests you.
package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Load is a closed loop: every session publishes its next turn when the last one
// has ended.
type Load struct {
	Sessions int
	Prompt   int // tokens
	Output   int // tokens
	For      time.Duration
	Turns    int // stop after so many, 0 for no limit
	Prefix   string
}

// Outcome is what a load did.
type Outcome struct {
	Turns, Tokens, Failed int64
	Took                  time.Duration
	TTFT, Total           []time.Duration
}

// Run runs the load over one client.
func (l Load) Run(ctx context.Context, c *turns.Client) (*Outcome, error) {
	var o Outcome
	var mu sync.Mutex
	var wg sync.WaitGroup
	var started atomic.Int64
	var first atomic.Pointer[error]
	begin := time.Now()
	end := begin.Add(l.For)
	for s := range l.Sessions {
		wg.Go(func() {
			var ttft, total []time.Duration
			for n := 0; l.For == 0 || time.Now().Before(end); n++ {
				if l.Turns > 0 && started.Add(1) > int64(l.Turns) || ctx.Err() != nil {
					break
				}
				a, b, toks, err := l.one(ctx, c, s, n)
				if err != nil {
					atomic.AddInt64(&o.Failed, 1)
					first.CompareAndSwap(nil, &err)
					continue
				}
				atomic.AddInt64(&o.Turns, 1)
				atomic.AddInt64(&o.Tokens, int64(toks))
				ttft, total = append(ttft, a), append(total, b)
			}
			mu.Lock()
			defer mu.Unlock()
			o.TTFT, o.Total = append(o.TTFT, ttft...), append(o.Total, total...)
		})
	}
	wg.Wait()
	o.Took = time.Since(begin)
	if e := first.Load(); e != nil {
		return &o, *e
	}
	return &o, nil
}

func (l Load) one(ctx context.Context, c *turns.Client, session, n int) (ttft, total time.Duration, tokens int, err error) {
	prompt := make(schemas.Tokens, l.Prompt)
	for i := range prompt {
		prompt[i] = int32(97 + (i*7+session*13+n*5)%26)
	}
	zero, maxTokens := 0.0, int64(l.Output)
	t := &schemas.Turn{Weir: schemas.TurnMeta{Turn: fmt.Sprintf("t%d", n), InputTokens: prompt, IgnoreEOS: true}}
	t.Temperature, t.MaxTokens = &zero, &maxTokens
	begin := time.Now()
	s, err := c.Publish(ctx, turns.Request{Session: fmt.Sprintf("%s%d", l.Prefix, session), Turn: t})
	if err != nil {
		return 0, 0, 0, err
	}
	defer s.Close()
	r, err := turns.Collect(ctx, s, func(*turns.Event) error {
		if ttft == 0 {
			ttft = time.Since(begin)
		}
		return nil
	})
	if err != nil {
		return 0, 0, 0, err
	}
	if r.Status != schemas.StatusOK {
		return 0, 0, 0, errors.New(r.Failure.Code + ": " + r.Failure.Message)
	}
	return ttft, time.Since(begin), len(r.Tokens), nil
}
