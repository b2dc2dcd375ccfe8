// Package load keeps a stack busy with agents that ask one turn after the other, on raw
// tokens, so that it fits the null engine as well as a real one.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Options of a load. The zero value is 4 agents whose prompts begin with 64 to 2,048
// tokens, grow by 16 to 512 per turn up to 4,096, and are answered with 8 to 64 tokens.
type Options struct {
	Seed             uint64
	Agents           int
	First, Step, Out [2]int // bounds of tokens
	Most             int    // tokens of a prompt; the agent then begins a new session
	Vocab            int32  // token ids are below this, 256 by default
}

func (o *Options) fill() {
	if o.Agents == 0 {
		o.Agents = 4
	}
	set := func(b *[2]int, from, to int) {
		if *b == [2]int{} {
			*b = [2]int{from, to}
		}
	}
	set(&o.First, 64, 2048)
	set(&o.Step, 16, 512)
	set(&o.Out, 8, 64)
	if o.Most == 0 {
		o.Most = 4096
	}
	if o.Vocab == 0 {
		o.Vocab = 256
	}
}

// Load is running.
type Load struct {
	turns atomic.Int64
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

// maxErrors bounds the failures that are kept.
const maxErrors = 8

// Start begins the load. It ends with ctx or by Stop.
func Start(ctx context.Context, c *turns.Client, o Options) *Load {
	o.fill()
	l := &Load{}
	ctx, l.stop = context.WithCancel(ctx)
	for i := range o.Agents {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		l.wg.Go(func() { l.agent(ctx, c, &o, i, rng) })
	}
	return l
}

// Turns are the turns that were answered so far.
func (l *Load) Turns() int { return int(l.turns.Load()) }

// Stop ends the load: turns in work are answered first. The error names turns that
// failed or whose answer is not what was asked for.
func (l *Load) Stop() error {
	l.stop()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

func (l *Load) agent(ctx context.Context, c *turns.Client, o *Options, i int, rng *rand.Rand) {
	between := func(b [2]int) int { return b[0] + rng.IntN(b[1]-b[0]+1) }
	var prompt schemas.Tokens
	for session := 0; ctx.Err() == nil; {
		n := between(o.Step)
		if len(prompt) == 0 || len(prompt)+n > o.Most {
			session, prompt, n = session+1, nil, between(o.First)
		}
		for range n {
			prompt = append(prompt, rng.Int32N(o.Vocab))
		}
		most := int64(between(o.Out))
		r, err := ask(context.WithoutCancel(ctx), c, fmt.Sprintf("load-%d-%d", i, session), prompt, most)
		if err != nil {
			l.fail(fmt.Errorf("agent %d, session %d: %w", i, session, err))
			return
		}
		l.turns.Add(1)
		prompt = append(prompt, r.Tokens...)
	}
}

func (l *Load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) < maxErrors {
		l.errs = append(l.errs, err)
	}
}

// ask runs one turn.
func ask(ctx context.Context, c *turns.Client, session string, prompt schemas.Tokens, most int64) (*schemas.Result, error) {
	t := &schemas.Turn{Weir: schemas.TurnMeta{InputTokens: append(schemas.Tokens(nil), prompt...)}}
	t.MaxTokens = &most
	s, err := c.Publish(ctx, turns.Request{Session: session, Turn: t})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r, err := turns.Collect(ctx, s, nil)
	switch {
	case err != nil:
		return nil, err
	case r.Failure != nil:
		return nil, fmt.Errorf("turn %s failed: %s: %s", r.Turn, r.Failure.Code, r.Failure.Message)
	case r.Usage.Prompt != len(prompt):
		return nil, fmt.Errorf("turn %s has a prompt of %d tokens, sent were %d", r.Turn, r.Usage.Prompt, len(prompt))
	}
	return r, nil
}
