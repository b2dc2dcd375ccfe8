package live

import (
	"reflect"
	"slices"
	"testing"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
)

// TestScript: the same seed gives the same agents, and a turn on a branch repeats the
// one before it unless the agent has said that its context is replaced.
func TestScript(t *testing.T) {
	a, b := script(7, 5, 12), script(7, 5, 12)
	if !reflect.DeepEqual(a, b) {
		t.Fatal("one seed gave two scripts")
	}
	if reflect.DeepEqual(a, script(8, 5, 12)) {
		t.Fatal("two seeds gave one script")
	}
	for _, x := range a {
		last, replaced, compactions := map[string]schemas.Tokens{}, map[string]bool{}, 0
		for i, s := range x.steps {
			before := last[s.branch]
			kept := before != nil && len(s.prompt) > len(before) && slices.Equal(before, s.prompt[:len(before)])
			if before != nil && kept == replaced[s.branch] {
				t.Errorf("%s step %d: context kept is %v, replaced was announced: %v", x.session, i, kept, replaced[s.branch])
			}
			if replaced[s.branch] = s.event == schemas.EventCompacted; replaced[s.branch] {
				compactions++
			}
			last[s.branch] = slices.Concat(s.prompt, s.answer)
		}
		if compactions == 0 || len(last) < 2 {
			t.Errorf("%s: %d compactions, %d branches", x.session, compactions, len(last))
		}
	}
}

// TestOrders: with room for the live set, weir's order computes less again than LRU.
// A small form of what `make show-tier` measures; the sizes are too small for a bar.
func TestOrders(t *testing.T) {
	if stack.Libraries() == "" {
		t.Skip("the llama.cpp libraries are not installed; `make engine` installs them")
	}
	out, err := Run(t.Context(), Options{Agents: 8, Steps: 5}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range out {
		t.Logf("%+v", o)
	}
	if lru, weir := out[0], out[1]; weir.Recomputed > lru.Recomputed || weir.Turns != lru.Turns || lru.Cached == 0 {
		t.Errorf("%d tokens computed again with weir's order, %d with LRU", weir.Recomputed, lru.Recomputed)
	}
}
