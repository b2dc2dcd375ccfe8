package route

import (
	"fmt"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestDirect: prompts of 400 tokens beside one worker that prefills and one that decodes.
// The decode worker computes them itself as long as few decodes stand still for it, or
// the way over the other one takes longer.
func TestDirect(t *testing.T) {
	for _, c := range []struct {
		name           string
		tps            float64
		decodes, queue int // turns that decode; prompts of 4,000 tokens that wait for prefill
		prompt         int
		direct         bool
	}{
		{"nothing decodes", 10_000, 0, 0, 400, true},
		{"few decode", 10_000, 2, 0, 400, true},
		{"many decode", 10_000, 100, 0, 400, false},
		{"many decode, and prefill is far behind", 10_000, 100, 30, 400, true},
		{"nothing is to be computed", 10_000, 100, 0, 60, true},
		{"too much for a decode worker", 1e9, 0, 0, 600, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, Config{})
			g.beat(schemas.Heartbeat{Executor: "d", Node: "n", Role: schemas.RoleDecode, Slots: 256, PrefillTPS: c.tps})
			for i := range c.decodes {
				g.ready(fmt.Sprintf("b%d", i), 60, 0, fmt.Sprintf("b%d", i))
			}
			g.beat(schemas.Heartbeat{Executor: "p", Node: "n", Role: schemas.RolePrefill, Slots: 64, PrefillTPS: c.tps})
			for i := range c.queue {
				g.ready(fmt.Sprintf("q%d", i), 4000, 0, fmt.Sprintf("q%d", i))
			}
			n := g.placed["decode d"]
			g.ready("u", c.prompt, 0, "s")
			if direct := g.placed["decode d"] > n; direct != c.direct {
				t.Errorf("directly: %v; %v, %d wait", direct, g.placed, g.r.waiting)
			}
		})
	}
}

// TestDirectAlone: where nobody prefills, the decode worker does.
func TestDirectAlone(t *testing.T) {
	g := newRig(t, Config{})
	g.beat(schemas.Heartbeat{Executor: "d", Node: "n", Role: schemas.RoleDecode, Slots: 256, PrefillTPS: 100})
	for i := range 20 {
		g.ready(fmt.Sprintf("u%d", i), 400, 0, fmt.Sprintf("s%d", i))
	}
	if g.placed["decode d"] != 20 {
		t.Errorf("%v, %d wait", g.placed, g.r.waiting)
	}
}
