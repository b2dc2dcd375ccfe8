package infer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/kvtier/branch"
)

// ErrNoTraces says that there is nothing to measure on.
var ErrNoTraces = errors.New("the recorded traces are not there")

// scored are the kinds that the sessions with block ids have labels for, in the
// order of the figures.
var scored = []branch.Kind{branch.SubAgent, branch.Fork, branch.Compaction, branch.Rewrite}

// Run measures on sharedDir/traces and on generated sessions, in about two seconds
// of one core. The thresholds of package branch were chosen on the WEKA sessions
// with odd numbers; the figures are of the even ones (docs/inference.md says which
// of them are not held-out figures all the same). For each kind with labels they
// are infer.<kind>.labels, the number of labelled events, .recall and .precision.
// <kind>_messages are the waits in traces of messages alone.
func Run(ctx context.Context, sharedDir string) ([]show.Figure, error) {
	dir := filepath.Join(sharedDir, "traces")
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTraces, err)
	}
	w, err := weka(ctx, dir, func(number int) bool { return number%2 == 0 })
	if err != nil {
		return nil, err
	}
	var steps []step
	for _, read := range []func(string) ([]step, error){tauSteps, sweSteps, tracelabSteps} {
		s, err := read(dir)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s...)
	}
	tool, user := waits(steps)
	allTool, allUser := waits(append(w.steps, steps...))
	var out []show.Figure
	out = append(out, allTool.figures("tool_wait")...)
	out = append(out, allUser.figures("user_wait")...)
	out = append(out, tool.figures("tool_wait_messages")...)
	out = append(out, user.figures("user_wait_messages")...)
	for _, k := range scored {
		out = append(out, w.kinds[k].figures(string(k))...)
	}
	return append(out, generatedPruning(25, 60).figures(string(branch.Pruned))...), ctx.Err()
}

// result is what the WEKA sessions give.
type result struct {
	sessions, calls, items int
	kinds                  map[branch.Kind]*count
	steps                  []step
}

// weka replays the sessions whose number is wanted.
func weka(ctx context.Context, dir string, want func(number int) bool) (*result, error) {
	out := &result{kinds: map[branch.Kind]*count{}}
	for _, k := range scored {
		out.kinds[k] = &count{}
	}
	path := filepath.Join(dir, "weka-cc-traces", "weka_cc_710.rle.jsonl.gz")
	return out, readWeka(path, func(s *wekaSession) error {
		n, err := s.number()
		if err != nil {
			return err
		}
		if !want(n) {
			return ctx.Err()
		}
		calls := s.stream()
		l := labels(calls)
		score(l, replay(calls, branch.Options{}), out.kinds)
		out.steps = append(out.steps, wekaSteps(calls, l)...)
		out.sessions++
		out.calls += len(calls)
		for _, c := range calls {
			out.items += len(c.items)
		}
		return ctx.Err()
	})
}
