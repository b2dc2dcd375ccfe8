package infer

import (
	"slices"

	"github.com/weir-dev/weir/kvtier/branch"
)

// The definitions of the labels that hindsight gives, on the true lines of the
// trace. Sizes are in blocks of 64 tokens.
const (
	// A step that loses more than this share of the blocks before is an event.
	lostShare = 0.1
	// A drop of 64 k tokens from 75 % of the line's maximum without a rebound to
	// 75 % within 3 steps is a compaction: the detector of TraceLab.
	bigDrop      = 1024
	nearMaximum  = 0.75
	reboundSteps = 3
	// Any drop to less than this share of the size before is one too, with the same
	// rule about rebounds.
	shorter = 0.6
	// The old line goes on when more than this share of what was lost comes back.
	backShare = 0.5
)

// unknown is the kind of a call that no label is known for; it is not scored.
const unknown branch.Kind = ""

// label is what hindsight says of a call.
type label struct {
	kind branch.Kind // Continue when nothing of note happened
	// lost is the share of the blocks of the call before that are not in this one.
	lost float64
	// after is the index of the call at which the old line goes on, for Fork and for
	// a SubAgent that the trace does not record; else -1.
	after int
	// prev is the index of the call before on the same true line, -1 for none.
	prev int
}

// labels are what is known of each call with the whole session in view.
func labels(calls []*call) []label {
	out := make([]label, len(calls))
	lines := map[int][]int{}
	for i, c := range calls {
		lines[c.line] = append(lines[c.line], i)
	}
	for line, at := range lines {
		largest := 0
		for _, i := range at {
			largest = max(largest, calls[i].blocks)
		}
		for k, i := range at {
			out[i] = label{kind: branch.Continue, after: -1, prev: -1}
			switch {
			case k > 0:
				out[i] = transition(calls, at, k, largest)
			case line > 0:
				out[i].kind = branch.SubAgent
			default:
				out[i].kind = branch.First
			}
		}
	}
	return out
}

// lost is the share of a's blocks that are not among the kept first ones.
func lost(a *call, kept int) float64 {
	if a.blocks == 0 {
		return 1
	}
	return float64(a.blocks-kept) / float64(a.blocks)
}

// transition labels the step from call at[k-1] to at[k] of a line.
func transition(calls []*call, at []int, k, largest int) label {
	a, b := calls[at[k-1]], calls[at[k]]
	l := label{kind: branch.Continue, after: -1, prev: at[k-1]}
	kept := common(a.Runs, b.Runs)
	if a.blocks == 0 {
		return l
	}
	l.lost = lost(a, kept)
	if l.lost <= lostShare {
		return l
	}
	// The main agent's list holds calls of other agents that the trace does not
	// mark; a call that extends an earlier one goes on from there.
	for _, j := range slices.Backward(at[:k-1]) {
		if before := common(calls[j].Runs, b.Runs); before > kept && lost(calls[j], before) <= lostShare {
			l.prev, l.lost = j, lost(calls[j], before)
			return l
		}
	}
	for _, j := range at[k+1:] {
		if back := common(a.Runs, calls[j].Runs); float64(back-kept) > backShare*float64(a.blocks-kept) {
			l.kind, l.after = branch.Fork, j
			if kept == 0 {
				l.kind = branch.SubAgent
			}
			return l
		}
	}
	if kept == 0 && a.Model != b.Model {
		// Block ids say nothing across models: the messages may be the same.
		l.kind = unknown
		return l
	}
	rebound := false
	for _, j := range at[k+1 : min(k+1+reboundSteps, len(at))] {
		rebound = rebound || float64(calls[j].blocks) >= nearMaximum*float64(a.blocks)
	}
	drop := a.blocks - b.blocks
	big := drop >= bigDrop && float64(a.blocks) >= nearMaximum*float64(largest)
	l.kind = branch.Rewrite
	if (big || float64(b.blocks) < shorter*float64(a.blocks)) && !rebound {
		l.kind = branch.Compaction
	}
	return l
}
