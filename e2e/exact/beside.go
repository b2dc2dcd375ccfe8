package exact

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

const besideTurns = 8 // other sequences

// others are long turns that stream in the background.
type others struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	tokens [besideTurns]atomic.Int64 // received so far
	errs   chan error
}

// startBeside starts the turns. One that comes to its end is followed by another.
func startBeside(ctx context.Context, c *turns.Client, vocab int) (*others, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &others{cancel: cancel, errs: make(chan error, besideTurns)}
	for i := range besideTurns {
		o.wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for n := 0; ctx.Err() == nil; n++ {
				if err := o.one(ctx, c, i, n, r, vocab); err != nil && ctx.Err() == nil {
					o.errs <- fmt.Errorf("exact: other sequence %d: %w", i, err)
					return
				}
			}
		})
	}
	_, err := o.all(ctx)
	if err != nil {
		o.stop()
	}
	return o, err
}

// one runs a turn of short prompt, so that it needs no prefill executor, until it
// or ctx ends.
func (o *others) one(ctx context.Context, c *turns.Client, i, n int, r *rand.Rand, vocab int) error {
	t := &schemas.Turn{Weir: schemas.TurnMeta{IgnoreEOS: true}}
	for range 20 + 4*i {
		t.Weir.InputTokens = append(t.Weir.InputTokens, 3+r.Int32N(int32(vocab)-3))
	}
	s, err := c.Publish(ctx, turns.Request{Session: fmt.Sprintf("beside-%d-%d", i, n), Turn: t})
	if err != nil {
		return err
	}
	defer s.Close()
	res, err := turns.Collect(ctx, s, func(e *turns.Event) error {
		o.tokens[i].Add(int64(len(e.Tokens)))
		return nil
	})
	if err == nil && res.Failure != nil {
		err = fmt.Errorf("%s: %s", res.Failure.Code, res.Failure.Message)
	}
	if ctx.Err() != nil {
		end, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		return s.Cancel(end, "the case is over")
	}
	return err
}

// all waits until every turn has received tokens since the call, and returns how
// many each has.
func (o *others) all(ctx context.Context) ([besideTurns]int64, error) {
	var before [besideTurns]int64
	for i := range before {
		before[i] = o.tokens[i].Load()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("exact: the other sequences do not decode"))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for o.moved(before) < besideTurns {
		select {
		case <-tick.C:
		case err := <-o.errs:
			return before, err
		case <-ctx.Done():
			return before, context.Cause(ctx)
		}
	}
	for i := range before {
		before[i] = o.tokens[i].Load()
	}
	return before, nil
}

// moved counts the turns that received tokens since before.
func (o *others) moved(before [besideTurns]int64) int {
	n := 0
	for i := range before {
		if o.tokens[i].Load() > before[i] {
			n++
		}
	}
	return n
}

func (o *others) stop() {
	o.cancel()
	o.wg.Wait()
}
