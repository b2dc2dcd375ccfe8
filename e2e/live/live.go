// Package live runs the same agents on the real engine twice: once with weir's
// retention order, once with plain LRU, with KV memory that holds what the agents
// still need but not what they leave behind.
//
// Read script.go first: what the agents do.
package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Order is a retention order, as --kv-order takes it.
type Order string

// The orders.
const (
	LRU  Order = "lru"
	Weir Order = "weir"
)

// Options of a comparison. The zero value is 8 agents with 10 steps: more than that
// keeps the engines of a small machine busy with new tokens alone.
type Options struct {
	Seed          uint64
	Agents, Steps int
	// Room is the KV memory as a multiple of the agents' largest contexts together. 0.8
	// holds what all of them need at one time, as contexts grow and are replaced in
	// turn; what sub-agents and replaced contexts leave behind does not fit beside it.
	Room float64
}

func (o *Options) fill() {
	if o.Agents == 0 {
		o.Agents = 8
	}
	if o.Steps == 0 {
		o.Steps = 10
	}
	if o.Room == 0 {
		o.Room = 0.8
	}
}

// Outcome is what one order yielded. Tokens are sums over all turns.
type Outcome struct {
	Order   Order   `json:"order"`
	Turns   int     `json:"turns"`
	Prompt  int     `json:"prompt_tokens"`
	Cached  int     `json:"cached_tokens"`
	HitRate float64 `json:"hit_rate"`
	// Recomputed are prompt tokens that were computed before in the same session, in
	// whole blocks, and again.
	Recomputed int     `json:"recomputed_tokens"`
	TTFTP50    float64 `json:"ttft_ms_p50"`
	TTFTP95    float64 `json:"ttft_ms_p95"`
	// KVBytes is the memory, LiveBytes what the agents' largest contexts take together.
	KVBytes   int64   `json:"kv_bytes"`
	LiveBytes int64   `json:"live_bytes"`
	Seconds   float64 `json:"seconds"`
}

// tokenBytes is the KV of a token of the default model: 8 layers of 4 heads of 64
// elements, keys and values, 2 bytes each.
const tokenBytes = 8 * 4 * 64 * 2 * 2

// orderWait bounds one run.
const orderWait = 5 * time.Minute

// Run runs the agents with each order in turn, each on a stack of its own.
func Run(ctx context.Context, o Options, emit func(*Outcome)) (out []Outcome, err error) {
	if stack.Libraries() == "" {
		return nil, errors.New("live: the llama.cpp libraries are not installed; `make engine` installs them")
	}
	o.fill()
	for _, order := range [...]Order{LRU, Weir} {
		one, err := run(ctx, o, order)
		if err != nil {
			return out, fmt.Errorf("live: order %s: %w", order, err)
		}
		out = append(out, *one)
		if emit != nil {
			emit(one)
		}
	}
	return out, nil
}

func run(ctx context.Context, o Options, order Order) (out *Outcome, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, orderWait, fmt.Errorf("it did not end within %s", orderWait))
	defer cancel()
	path, err := stack.ModelFile("small")
	if err != nil {
		return nil, err
	}
	agents := script(o.Seed, o.Agents, o.Steps)
	live := int64(0)
	for _, a := range agents {
		live += int64(a.largest) * tokenBytes
	}
	kv := int64(float64(live) * o.Room)
	s, err := stack.Launch(ctx, stack.Options{Args: []string{
		"--engine", "llama", "--model", path, "--prefill", "1", "--decode", "1", "--ctx", "4096", "--slots", "4",
		"--kv-mem", fmt.Sprintf("%dKiB", kv>>10), "--kv-order", string(order),
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	results, err := play(ctx, client, agents)
	if err != nil {
		return nil, errors.Join(err, errors.New(s.Logs(10)))
	}
	out = sum(results)
	out.Order, out.KVBytes, out.LiveBytes, out.Seconds = order, kv, live, time.Since(began).Seconds()
	return out, nil
}

// outcome of one turn.
type outcome struct {
	usage schemas.Usage
	known int // leading tokens of the prompt, in whole blocks, that the session computed before
	ttft  time.Duration
}

// play runs all agents at the same time.
func play(ctx context.Context, c *turns.Client, agents []agent) (all []outcome, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	got := make([][]outcome, len(agents))
	for i := range agents {
		wg.Go(func() {
			var err error
			if got[i], err = agents[i].play(ctx, c); err != nil {
				cancel(fmt.Errorf("%s: %w", agents[i].session, err))
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return slices.Concat(got...), nil
}

// pause waits as the agent does for its tool.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (a *agent) play(ctx context.Context, c *turns.Client) (out []outcome, err error) {
	pause(ctx, a.start)
	var seen []schemas.Tokens
	for i := range a.steps {
		s := &a.steps[i]
		o, err := a.turn(ctx, c, s, i)
		if err != nil {
			return out, fmt.Errorf("step %d: %w", i, err)
		}
		for _, earlier := range seen {
			o.known = max(o.known, common(earlier, s.prompt))
		}
		seen = append(seen, slices.Concat(s.prompt, s.answer))
		out = append(out, o)
		_, err = c.Event(ctx, turns.EventRequest{Session: a.session, Kind: s.event, Branch: s.branch, Tool: s.tool, Expected: s.expect})
		if err != nil {
			return out, fmt.Errorf("event %s: %w", s.event, err)
		}
		pause(ctx, s.wait)
	}
	return out, nil
}

func (a *agent) turn(ctx context.Context, c *turns.Client, s *step, i int) (o outcome, err error) {
	most := int64(len(s.answer))
	t := &schemas.Turn{Weir: schemas.TurnMeta{
		Turn: fmt.Sprintf("t%d", i), Branch: s.branch, InputTokens: s.prompt, ForceOutput: s.answer, IgnoreEOS: true,
	}}
	t.MaxTokens = &most
	stream, err := c.Publish(ctx, turns.Request{Session: a.session, Turn: t})
	if err != nil {
		return o, err
	}
	res, err := turns.Collect(ctx, stream, nil)
	if err != nil {
		return o, err
	}
	if res.Status != schemas.StatusOK {
		return o, fmt.Errorf("the turn failed: %s", res.Failure.Message)
	}
	return outcome{usage: res.Usage, ttft: time.Duration(res.Timing.TTFTNS)}, nil
}

// common is the number of leading tokens that both have, in whole blocks; the last
// token of a prompt is always computed.
func common(a, b schemas.Tokens) int {
	n := 0
	for n < len(a) && n < len(b)-1 && a[n] == b[n] {
		n++
	}
	return n / 64 * 64
}

func sum(all []outcome) *Outcome {
	o := &Outcome{Turns: len(all)}
	ttft := make([]float64, 0, len(all))
	for _, t := range all {
		o.Prompt += t.usage.Prompt
		o.Cached += t.usage.Cached
		o.Recomputed += max(0, t.known-t.usage.Cached)
		ttft = append(ttft, t.ttft.Seconds()*1000)
	}
	if o.Prompt > 0 {
		o.HitRate = float64(o.Cached) / float64(o.Prompt)
	}
	slices.Sort(ttft)
	if n := len(ttft); n > 0 {
		o.TTFTP50, o.TTFTP95 = ttft[n/2], ttft[min(n-1, n*95/100)]
	}
	return o
}
