package up

import (
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/serve"
)

// keeps tells which roles of an earlier run stay although the flags say otherwise: what
// people hold, and what a planner that still acts has found to be right.
func (s *stack) keeps(a *schemas.Assignment) bool {
	switch s.o.Planner {
	case serve.PlannerAct:
		return a.Pinned || a.Plan != ""
	case serve.PlannerAdvise:
		return a.Pinned
	}
	return false
}
