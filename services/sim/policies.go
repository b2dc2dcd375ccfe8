package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-dev/weir/planner/baseline"
	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
)

// Systems are the names that ParseSystem knows; those with :P may say how many
// executors prefill at the start.
const Systems = "static:P, mixed, weir[:P], dynamo[:P]"

// ParseSystem makes a system from its name, with what each is usually compared with:
// weir has the shared tier, its own order and admission, the others private memory and
// LRU.
func ParseSystem(name string, workers int, cal *calib.Calibration, seed uint64) (System, error) {
	kind, start, has := strings.Cut(name, ":")
	sys := System{Name: name, Tier: TierPrivate, Order: OrderLRU, Prefill: max(1, workers/2)}
	if has {
		p, err := strconv.Atoi(start)
		if err != nil {
			return sys, fmt.Errorf("%w: system %q: %q is not a number of executors", ErrScenario, name, start)
		}
		sys.Prefill = p
	}
	switch kind {
	case "static":
	case "mixed":
		sys.Mixed = true
	case "weir":
		sys.Tier, sys.Order, sys.Admit = TierShared, OrderWeir, true
		sys.Planner = func(cell string, _ []string) schemas.Actor {
			return plan.New(plan.Config{Cell: cell, Epoch: 1, Model: demand.FromCalibration(cal)})
		}
	case "dynamo":
		sys.Planner = func(cell string, _ []string) schemas.Actor {
			return baseline.NewDynamo(baseline.Config{Cell: cell, Epoch: 1, Cal: cal})
		}
		sys.Route = route.Config{Choose: baseline.NewChoose(seed), DirectMax: -1}
		sys.Restart = time.Duration(cal.Flip.RestartS * float64(time.Second))
	default:
		return sys, fmt.Errorf("%w: system %q; known are %s", ErrScenario, name, Systems)
	}
	return sys, nil
}
