package flips

import (
	"math/rand/v2"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// step is one turn of an agent: so many new prompt tokens, then an answer of so many,
// then a wait as for a tool.
type step struct {
	fresh schemas.Tokens
	out   int
	warm  bool // sampled with a seed, else greedy
	wait  time.Duration
}

// The shape of the load. A quarter of the answers is long, Options.Long: they are what is
// in flight when roles change.
const (
	maxContext = 6000 // tokens; a session ends before
	maxSteps   = 6    // turns of a session
)

// session draws the turns of one agent's n-th session. Every second agent starts with
// a short context, the others with that of a coding agent in small.
func session(seed uint64, agent, n, long int) []step {
	r := rand.New(rand.NewPCG(seed, uint64(agent)<<32|uint64(n)))
	var steps []step
	total := 0
	for i := range 2 + r.IntN(maxSteps-1) {
		s := step{warm: r.IntN(2) == 0, wait: time.Duration(20+r.IntN(280)) * time.Millisecond}
		fresh := 20 + r.IntN(220)
		switch {
		case i == 0 && agent%2 == 0:
			fresh = 900 + r.IntN(900)
		case i == 0:
			fresh = 10 + r.IntN(60)
		}
		switch k := r.IntN(20); {
		case k < 5:
			s.out = long
		case k < 9:
			s.out = long/5 + r.IntN(long/5)
		default:
			s.out = 20 + r.IntN(100)
		}
		if total += fresh + s.out; total > maxContext {
			break
		}
		s.fresh = make(schemas.Tokens, fresh)
		for k := range s.fresh {
			s.fresh[k] = int32(300 + r.IntN(200)) // ordinary pieces of the preset vocabulary
		}
		steps = append(steps, s)
	}
	return steps
}

// turn makes the message.
func (s *step) turn(id string, prompt schemas.Tokens) *schemas.Turn {
	temperature, seed, topP, out := 0.0, int64(4711), 0.95, int64(s.out)
	if s.warm {
		temperature = 0.8
	}
	t := &schemas.Turn{Weir: schemas.TurnMeta{Turn: id, InputTokens: prompt, IgnoreEOS: true}}
	t.Temperature, t.Seed, t.TopP, t.MaxTokens = &temperature, &seed, &topP, &out
	return t
}
