package flips

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// record is one turn as its reader saw it.
type record struct {
	session string
	n       int // in the session
	step    step
	prompt  schemas.Tokens
	answer  schemas.Tokens
	known   int // prompt tokens whose blocks an earlier turn of the session left
	found   int // of these, as the result says
	attempt int // of the result
	pauses  []time.Duration
	spans   []schemas.StageSpan // of the result
	problem string
}

// agents are closed loops of turns.
type agents struct {
	client *turns.Client
	tenant string
	seed   uint64
	long   int  // tokens of a long answer
	wait   bool // as for tools

	mu      sync.Mutex
	records []*record
	flying  int
	dup     int
}

// run lets n agents work until stop is closed and their turns have ended.
func (a *agents) run(ctx context.Context, n int, stop <-chan struct{}) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for k := 0; ctx.Err() == nil && !closed(stop); k++ {
				a.session(ctx, fmt.Sprintf("a%d-%d", i, k), session(a.seed, i, k, a.long), stop)
			}
		})
	}
	wg.Wait()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (a *agents) session(ctx context.Context, id string, steps []step, stop <-chan struct{}) {
	var have schemas.Tokens
	for k := range steps {
		if closed(stop) || ctx.Err() != nil {
			return
		}
		r := &record{session: id, n: k, step: steps[k], prompt: append(slices.Clone(have), steps[k].fresh...), known: whole(len(have))}
		a.turn(ctx, r)
		if ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		a.records = append(a.records, r)
		a.mu.Unlock()
		if r.problem != "" {
			return
		}
		have = append(slices.Clone(r.prompt), r.answer...)
		if a.wait {
			pause(ctx, steps[k].wait)
		}
	}
}

// whole is how many tokens of a context lie in whole blocks. The last token was never
// fed to the engine.
func whole(n int) int { return max(0, n-1) / gpuexec.BlockTokens * gpuexec.BlockTokens }

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// turn publishes a turn and reads it to its end.
func (a *agents) turn(ctx context.Context, r *record) {
	a.count(1)
	defer a.count(-1)
	s, err := a.publish(ctx, r)
	if err != nil {
		r.problem = "not acknowledged: " + err.Error()
		return
	}
	defer s.Close()
	var got schemas.Tokens
	var last time.Time
	attempt, dup := 0, 0
	res, err := turns.Collect(ctx, s, func(e *turns.Event) error {
		if len(e.Tokens) == 0 {
			return nil
		}
		now := time.Now()
		if attempt != 0 && e.Attempt != attempt {
			r.pauses = append(r.pauses, now.Sub(last))
		}
		attempt, last = e.Attempt, now
		switch {
		case e.First > len(got):
			return fmt.Errorf("a gap before token %d, %d seen", e.First, len(got))
		case e.First < len(got):
			dup += len(got) - e.First
		}
		got = append(got[:e.First], e.Tokens...)
		return nil
	})
	a.mu.Lock()
	a.dup += dup
	a.mu.Unlock()
	switch {
	case err != nil:
		r.problem = err.Error()
	case res.Status != schemas.StatusOK:
		r.problem = "failed: " + res.Failure.Code + ": " + res.Failure.Message
	case !slices.Equal(got, res.Tokens):
		r.problem = fmt.Sprintf("the stream of %d tokens and the result of %d differ", len(got), len(res.Tokens))
	default:
		r.answer, r.found, r.attempt, r.spans = res.Tokens, min(res.Usage.Cached, r.known), res.Attempt, res.Timing.Spans
	}
}

func (a *agents) count(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flying += n
}

// publish tries again while nothing was acknowledged: a turn counts from its
// acknowledgement on. The turn's id makes a repeat the same turn.
func (a *agents) publish(ctx context.Context, r *record) (*turns.Stream, error) {
	for try := 0; ; try++ {
		s, err := a.client.Publish(ctx, turns.Request{Tenant: a.tenant, Session: r.session, Turn: r.step.turn("t"+strconv.Itoa(r.n), r.prompt)})
		if err == nil || try >= 300 || ctx.Err() != nil {
			return s, err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// busy is the number of turns in flight.
func (a *agents) busy() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.flying
}
