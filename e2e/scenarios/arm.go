package scenarios

import (
	"fmt"
	"time"

	"github.com/weir-dev/weir/planner/baseline"
	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/schemas/calib"
	"github.com/weir-dev/weir/services/sim"
)

// Kind is one of the systems that a scenario names.
type Kind string

// The systems. The static split has two arms, the dynamo-like policy two starts.
const (
	Weir          Kind = "weir"
	StaticShared  Kind = "static, shared tier"
	StaticPrivate Kind = "static, private tier"
	DynamoA       Kind = "dynamo-like policy (as of 2a6da14c), start a" // tuned for the first phase
	DynamoB       Kind = "dynamo-like policy (as of 2a6da14c), start b" // tuned for the whole run
	Aggregated    Kind = "aggregated"
	HBMOnly       Kind = "hbm-only"
)

// Loops are the settings of the dynamo-like planner that are swept: its default target,
// the SLA target with its default loop, and with both loops.
type Loops string

// The settings of its loops.
const (
	LoopsThroughput Loops = "throughput"
	LoopsSLA        Loops = "sla"
	LoopsBoth       Loops = "sla+load"
	LoopsLatency    Loops = "latency"
)

// RestartS is how long a worker of the dynamo-like policy takes to come back, in seconds.
const RestartS = 240

// Arm is a system with its settings.
type Arm struct {
	Kind     Kind    `json:"kind"`
	Prefill  int     `json:"prefill,omitempty"` // executors that prefill at the start
	Loops    Loops   `json:"loops,omitempty"`
	RestartS float64 `json:"restart_s,omitempty"`
	// WeirRouter gives the dynamo-like planner weir's router: a trial that tells apart
	// what its two policies do. No bar is computed with it.
	WeirRouter bool `json:"weir_router,omitempty"`
	// MixSteps is the chunking of aggregated: decode steps between two prefill steps.
	MixSteps int `json:"mix_steps,omitempty"`
}

func (a Arm) String() string {
	s := string(a.Kind)
	if a.Prefill > 0 {
		s += fmt.Sprintf(", %d prefill", a.Prefill)
	}
	if a.Loops != "" {
		s += fmt.Sprintf(", target %s, restart %g s", a.Loops, a.RestartS)
	}
	if a.WeirRouter {
		s += ", weir's router"
	}
	if a.MixSteps > 0 {
		s += fmt.Sprintf(", %d decode steps between prefills", a.MixSteps)
	}
	return s
}

// System is the arm as the simulated cell takes it.
func (a Arm) System(sc *sim.Scenario, cal *calib.Calibration, seed uint64) (sim.System, error) {
	s := sim.System{Name: a.String(), Prefill: a.Prefill, Tier: sim.TierPrivate, Order: sim.OrderLRU}
	switch a.Kind {
	case Weir:
		// Where it starts is not tuned: the planner finds its split.
		return sim.ParseSystem("weir", sc.Cluster.Workers, cal, seed)
	case StaticShared:
		s.Tier = sim.TierShared
	case StaticPrivate:
	case HBMOnly:
		s.Tier = sim.TierNone
	case Aggregated:
		s.Mixed, s.MixSteps = true, a.MixSteps
	case DynamoA, DynamoB:
		cfg := baseline.Config{Epoch: 1, Cal: cal}
		switch a.Loops {
		case LoopsThroughput, LoopsLatency, LoopsSLA:
			cfg.Target = baseline.Target(a.Loops)
		case LoopsBoth:
			cfg.Target, cfg.LoadLoop = baseline.TargetSLA, true
		default:
			return s, fmt.Errorf("scenarios: %s: %q is no setting of its loops", a.Kind, a.Loops)
		}
		s.Restart = time.Duration(a.RestartS * float64(time.Second))
		if !a.WeirRouter {
			// Its router never sends a turn past prefill.
			s.Route = route.Config{Choose: baseline.NewChoose(seed), DirectMax: -1}
		}
		s.Planner = func(cell string, _ []string) schemas.Actor {
			cfg.Cell = cell
			return baseline.NewDynamo(cfg)
		}
	default:
		return s, fmt.Errorf("scenarios: there is no system %q", a.Kind)
	}
	return s, nil
}
