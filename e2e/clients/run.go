package clients

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-dev/weir/e2e/stack"
)

// Figures say which of the four clients work unchanged.
type Figures struct {
	Passed, Failed int
	// ToolWaits is the least number of tool waits that lineage saw in a loop.
	ToolWaits int
	Errors    []error // of those that failed
}

// Names are the four clients, in the order in which they run.
func Names() []string { return []string{"openai", "anthropic", "agents", "langgraph"} }

// Run launches a stack on the default model and runs the four clients against it.
// The error says why nothing could be run.
func Run(ctx context.Context) (f Figures, err error) {
	p, err := Node(ctx)
	if err != nil {
		return f, err
	}
	s, err := stack.Launch(ctx, Options())
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	f.ToolWaits = -1
	for _, name := range Names() {
		waits, loops, err := p.Client(ctx, s, name)
		if err != nil {
			f.Failed++
			f.Errors = append(f.Errors, fmt.Errorf("%s: %w", name, err))
		} else {
			f.Passed++
		}
		if loops && (f.ToolWaits < 0 || waits < f.ToolWaits) {
			f.ToolWaits = waits
		}
	}
	return f, nil
}

// Options is the stack that the clients need: an engine that can constrain its
// answers, because the default model's weights are random and would never call a tool.
func Options() stack.Options {
	return stack.Options{Args: []string{"--engine", "llama", "--kv-mem", "256MiB"}}
}

// Client runs one of the four clients. waits is the number of tool waits that lineage
// saw, of a client that loops.
func (p *Programs) Client(ctx context.Context, s *stack.Stack, name string) (waits int, loops bool, err error) {
	switch name {
	case "openai":
		return 0, false, errors.Join(p.openaiTools(ctx, s), p.openaiResponses(ctx, s))
	case "anthropic":
		return 0, false, p.anthropic(ctx, s)
	case "agents":
		// Both of the APIs that the package speaks; Responses is its default.
		chat, err := p.loop(ctx, s, "agents.mjs", "chat_completions")
		if err != nil {
			return chat, true, err
		}
		responses, err := p.loop(ctx, s, "agents.mjs", "responses")
		return min(chat, responses), true, err
	case "langgraph":
		waits, err = p.loop(ctx, s, "langgraph.mjs")
		return waits, true, err
	}
	return 0, false, fmt.Errorf("there is no client %q", name)
}
