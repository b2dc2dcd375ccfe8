package infer

import (
	"testing"

	"github.com/weir-dev/weir/kvtier/branch"
)

// TestPruned: pruned screenshots are seen under every policy, and nothing else is
// taken for them.
func TestPruned(t *testing.T) {
	for j, p := range prunings {
		wrong := map[[2]branch.Kind]int{}
		pruned := 0
		for k := range 20 {
			labels, placed := runDesktop(uint64(100+k*len(prunings)+j), p, 60)
			for i := range labels {
				if labels[i] == branch.Pruned {
					pruned++
				}
				if labels[i] != placed[i] {
					wrong[[2]branch.Kind{labels[i], placed[i]}]++
				}
			}
		}
		if len(wrong) > 0 || pruned < 20 {
			t.Errorf("%s: %d pruned, wrong (label, inferred): %v", p.name, pruned, wrong)
		}
	}
}
