package infer

import (
	"strconv"

	"github.com/weir-dev/weir/kvtier/branch"
)

// replay places the calls of one session in the order of time and returns each
// one's placement. The forest is told contents, roles, sizes and which branches
// have a call in progress, nothing else.
func replay(calls []*call, o branch.Options) []branch.Placement {
	f := branch.NewForest(o)
	until := map[string]float64{}
	out := make([]branch.Placement, len(calls))
	made := 0
	for i, c := range calls {
		at := int64(c.at * 1e9)
		p := f.Place(branch.Request{At: at, Items: c.items},
			func(b string) bool { return until[b] > c.at },
			func() string { made++; return "b-" + strconv.Itoa(made) })
		f.Set(p.Branch, p.Parent, c.items, at)
		until[p.Branch] = max(until[p.Branch], c.until)
		out[i] = p
	}
	return out
}

// score compares placements with labels.
//
// A sub-agent and a fork are found when the call that starts the new line goes on a
// new branch, or when the return to the old line does. Compaction, rewrite: the call
// gets that kind. An inferred rewrite counts from the same loss on as a labelled one.
func score(labels []label, placed []branch.Placement, into map[branch.Kind]*count) {
	returns := map[int]bool{}
	for _, l := range labels {
		if l.after >= 0 {
			returns[l.after] = true
		}
	}
	for i, l := range labels {
		p := placed[i]
		if l.kind == unknown {
			continue
		}
		for _, kind := range []branch.Kind{branch.SubAgent, branch.Fork, branch.Compaction, branch.Rewrite} {
			c := into[kind]
			labelled := l.kind == kind
			inferred := p.Kind == kind && (kind != branch.Rewrite || weighty(p))
			right := inferred && labelled
			found := right
			if labelled && (kind == branch.Fork || kind == branch.SubAgent) {
				found = p.New || l.after >= 0 && placed[l.after].New
			}
			// A new line that hindsight knows, under the other of the two names, or
			// the return to the old one.
			if inferred && (kind == branch.Fork || kind == branch.SubAgent) {
				right = right || l.kind == branch.Fork || l.kind == branch.SubAgent || returns[i]
			}
			if labelled {
				c.labels++
			}
			if inferred {
				c.inferred++
			}
			if right {
				c.right++
			}
			if found {
				c.found++
			}
		}
	}
}

// weighty says whether a rewrite is large enough to be an event by the labels'
// definition.
func weighty(p branch.Placement) bool {
	before := p.KeptSize + p.DroppedSize
	return float64(p.DroppedSize) > lostShare*float64(before)
}
