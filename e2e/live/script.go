package live

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// step is one turn of an agent and what the agent says and waits for afterwards.
type step struct {
	branch string
	prompt schemas.Tokens
	answer schemas.Tokens // given, so that both runs have the same contexts
	event  schemas.EventKind
	tool   string
	wait   time.Duration
	expect time.Duration // what the agent says that it will wait
	ends   string        // a sub-agent's branch that is over after this turn
}

// agent is one session.
type agent struct {
	session string
	start   time.Duration
	steps   []step
	largest int // tokens of its largest main context
}

// Sizes in tokens. They are small because the engine has one or two processor cores;
// the proportions are those of coding agents: a step adds an eighth to a fifth of the
// context, a compaction leaves the system prompt and a summary.
const (
	systemTokens  = 192
	taskTokens    = 384
	summaryTokens = 192
	answerTokens  = 16
	resultMin     = 160
	resultMax     = 352
	subTokens     = 448
	compactEvery  = 4
	subEvery      = 5
)

// script is what n agents do in so many steps each. The same seed gives the same.
func script(seed uint64, n, steps int) []agent {
	r := rand.New(rand.NewPCG(seed, 0x6c697665))
	draw := func(count int) schemas.Tokens {
		out := make(schemas.Tokens, count)
		for i := range out {
			out[i] = 32 + r.Int32N(200)
		}
		return out
	}
	system := draw(systemTokens)
	join := func(parts ...schemas.Tokens) (out schemas.Tokens) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	agents := make([]agent, n)
	for i := range agents {
		a := &agents[i]
		a.session = fmt.Sprintf("agent-%d", i)
		a.start = time.Duration(i) * 250 * time.Millisecond
		context := join(system, draw(taskTokens))
		for k := range steps {
			s := step{branch: schemas.DefaultBranch, prompt: context, answer: draw(answerTokens)}
			a.largest = max(a.largest, len(context)+answerTokens)
			s.event, s.tool, s.wait, s.expect = waits(r)
			context = join(context, s.answer, draw(resultMin+r.IntN(resultMax-resultMin)))
			if k%compactEvery == compactEvery-1 {
				s.event, s.tool, s.expect = schemas.EventCompacted, "", 0
				s.wait = 200 * time.Millisecond
				context = join(system, draw(summaryTokens))
			}
			a.steps = append(a.steps, s)
			if k%subEvery == 2 {
				a.steps = append(a.steps, subAgent(r, fmt.Sprintf("sub-%d", k), join(system, draw(subTokens)), draw)...)
			}
		}
		a.steps[len(a.steps)-1].event = schemas.EventSessionEnd
	}
	return agents
}

// waits draws what an agent waits for: most tools answer at once, one in four is a
// test run of some ten seconds, and it says so.
func waits(r *rand.Rand) (event schemas.EventKind, tool string, wait, expect time.Duration) {
	if r.IntN(4) == 0 {
		wait = 8*time.Second + time.Duration(r.Int64N(int64(6*time.Second)))
		return schemas.EventToolWait, "test", wait, 11 * time.Second
	}
	wait = time.Duration(0.25 * math.Exp(0.8*r.NormFloat64()) * float64(time.Second))
	return schemas.EventToolWait, "read", min(wait, 3*time.Second), 0
}

// subAgent is two turns on a branch of its own, which is over then.
func subAgent(r *rand.Rand, branch string, context schemas.Tokens, draw func(int) schemas.Tokens) []step {
	one := step{
		branch: branch, prompt: context, answer: draw(answerTokens),
		event: schemas.EventToolWait, tool: "read", wait: 100 * time.Millisecond,
	}
	two := step{branch: branch, answer: draw(answerTokens), event: schemas.EventBranchEnd, ends: branch}
	two.prompt = append(append(append(two.prompt, context...), one.answer...), draw(resultMin+r.IntN(resultMax-resultMin))...)
	return []step{one, two}
}
