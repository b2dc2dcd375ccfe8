package plan_test

import (
	"reflect"
	"testing"

	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
)

// TestSize: costs of a worker of four accelerators, and workers that say that they have
// four, are the same cell as costs and workers of size 1. One of twice the size counts
// as two.
func TestSize(t *testing.T) {
	play := func(accelerators int) []*schemas.Plan {
		model := glm()
		model.Size = float64(accelerators)
		c := newCell(1, plan.Config{Model: model}, 9, 3, computerUse(always(300)))
		c.onBeat = func(h *schemas.Heartbeat) bool {
			h.Size = accelerators
			return true
		}
		c.run(60)
		return c.plans
	}
	one, four := play(1), play(4)
	if len(one) == 0 || !reflect.DeepEqual(one, four) {
		t.Errorf("%d decisions with workers of size 1, %d other ones with workers of four accelerators", len(one), len(four))
	}

	model := glm()
	model.Size = 4
	c := newCell(1, plan.Config{Model: model}, 3, 1, computerUse(always(60)))
	c.onBeat = func(h *schemas.Heartbeat) bool {
		if h.Size = 4; h.Executor == c.execs[2].id {
			h.Size = 8
		}
		return true
	}
	c.run(20)
	if in := c.last().Inputs; in.Executors != 3 || in.Size != 4 {
		t.Errorf("three workers, one of twice the size, are %d of size %g", in.Executors, in.Size)
	}
}
