package churn

import (
	"slices"

	"github.com/weir-dev/weir/kvtier/workload"
)

// maxPrompt bounds what is added to a context at once, and the context, in tokens.
const maxPrompt = 1 << 20

// maxSystems bounds the shared prompts of a kind, systemBlocks the ids of each.
const (
	maxSystems   = 1 << 10
	systemBlocks = maxPrompt / workload.BlockTokens
)

// Kinds of shared prompts. Each has its own range of global ids.
const (
	sharedAgent = iota
	sharedSub
	sharedScreen
)

// shared is the system prompt number k of a kind: its whole blocks. What is in the
// block behind them differs from session to session.
func shared(kind, k, tokens int) workload.Run {
	from := workload.Global + int32(kind*maxSystems+k)*systemBlocks
	return workload.Run{From: from, N: int32(tokens / workload.BlockTokens)}
}

// line is one line of context.
type line struct {
	id     int32
	runs   []workload.Run
	tokens int
	blocks int
	system int // tokens that every rewrite keeps
}

// grow adds n tokens; ids come from the session's counter. A context of maxPrompt, or
// one of a session whose ids are used up, stays as it is.
func (l *line) grow(n int, ids *int32) {
	tokens := l.tokens + max(n, 0)
	need := int32(tokens/workload.BlockTokens - l.blocks)
	if tokens > maxPrompt || *ids > workload.Global-need {
		return
	}
	if l.tokens = tokens; need == 0 {
		return
	}
	if k := len(l.runs) - 1; k >= 0 && l.runs[k].From+l.runs[k].N == *ids {
		l.runs[k].N += need
	} else {
		l.runs = append(l.runs, workload.Run{From: *ids, N: need})
	}
	*ids += need
	l.blocks += int(need)
}

// cut drops all tokens from the at-th on. The block that holds it is not kept:
// what follows will be something else.
func (l *line) cut(at int) {
	at = min(max(at, 0), l.tokens)
	keep := at / workload.BlockTokens
	l.tokens, l.blocks = at, min(keep, l.blocks)
	for i := range l.runs {
		if n := int(l.runs[i].N); keep > n {
			keep -= n
			continue
		}
		l.runs[i].N = int32(keep)
		l.runs = l.runs[:i+1]
		break
	}
	if k := len(l.runs) - 1; k >= 0 && l.runs[k].N == 0 {
		l.runs = l.runs[:k]
	}
}

// prompt is a copy of the runs.
func (l *line) prompt() []workload.Run { return slices.Clone(l.runs) }
