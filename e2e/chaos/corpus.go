package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// prompt is one turn whose answer is known from a run without faults.
type prompt struct {
	tokens schemas.Tokens
	output int
	seeded bool
	want   schemas.Tokens
}

// corpus draws prompts of 200 to 900 tokens with answers of 40 to 160, every
// second one sampled with a seed.
func corpus(r *rand.Rand, n int) []*prompt {
	ps := make([]*prompt, n)
	for i := range ps {
		p := &prompt{tokens: make(schemas.Tokens, 200+r.IntN(700)), output: 40 + r.IntN(120), seeded: i%2 == 1}
		for k := range p.tokens {
			p.tokens[k] = int32(300 + r.IntN(200)) // ordinary pieces of the preset vocabulary
		}
		ps[i] = p
	}
	return ps
}

func (p *prompt) turn(id string) *schemas.Turn {
	temperature, seed, topP, out := 0.0, int64(4711), 0.95, int64(p.output)
	if p.seeded {
		temperature = 0.8
	}
	t := &schemas.Turn{Weir: schemas.TurnMeta{Turn: id, InputTokens: p.tokens, IgnoreEOS: true}}
	t.Temperature, t.Seed, t.TopP, t.MaxTokens = &temperature, &seed, &topP, &out
	return t
}

// learn runs every prompt once without faults.
func learn(ctx context.Context, c *turns.Client, ps []*prompt) error {
	for i, p := range ps {
		s, err := c.Publish(ctx, turns.Request{Session: fmt.Sprintf("learn%d", i), Turn: p.turn("t")})
		if err != nil {
			return err
		}
		r, err := turns.Collect(ctx, s, nil)
		s.Close()
		if err != nil {
			return err
		}
		if r.Status != schemas.StatusOK {
			return fmt.Errorf("chaos: a turn without faults failed: %s", r.Failure.Message)
		}
		p.want = slices.Clone(r.Tokens)
	}
	return nil
}
