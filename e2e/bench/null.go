package bench

import (
	"context"
	"time"

	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
)

// Null measures what weir itself can carry: on the null engine, which computes
// nothing, with separate processes, every stream on and default trace sampling.
func Null(ctx context.Context, seconds time.Duration) ([]show.Figure, error) {
	s, err := stack.Launch(ctx, stack.Options{Args: []string{"--engine", "null", "--prefill", "1", "--decode", "1", "--slots", "256", "--kv-mem", "64MiB"}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Stop() }() // its own test checks what stopping leaves behind
	c, err := s.Client()
	if err != nil {
		return nil, err
	}
	warm := Load{Sessions: 64, Prompt: 64, Output: 16, For: time.Second, Prefix: "w"}
	if _, err := warm.Run(ctx, c); err != nil {
		return nil, err
	}
	turns, err := Load{Sessions: 256, Prompt: 64, Output: 16, For: seconds, Prefix: "n"}.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	tokens, err := Load{Sessions: 32, Prompt: 64, Output: 4000, For: seconds, Prefix: "s"}.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	return []show.Figure{
		{Name: "null.turns_per_s", Value: float64(turns.Turns) / turns.Took.Seconds(), Unit: "1/s"},
		{Name: "null.tokens_per_s", Value: float64(tokens.Tokens) / tokens.Took.Seconds(), Unit: "1/s"},
	}, nil
}
