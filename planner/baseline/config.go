package baseline

import (
	"fmt"

	"github.com/weir-dev/weir/schemas/calib"
)

// Target is what the dynamo-like planner scales by (planner/config/planner_config.py).
type Target string

// The targets. All but sla have the load loop only.
const (
	TargetThroughput Target = "throughput" // its default
	TargetLatency    Target = "latency"
	TargetLoad       Target = "load" // thresholds of the user
	TargetSLA        Target = "sla"  // the throughput loop; LoadLoop adds the other one
)

// Config of a baseline. Durations are nanoseconds.
type Config struct {
	Cell  string
	Epoch uint64 // of the planner's lease

	// Prefill is how many executors of each pool prefill at the start. A pool whose
	// executors have roles already is left as it is.
	Prefill int
	// Mixed: all executors do both, and Prefill counts nothing. Static only.
	Mixed bool

	// SilentNS: an executor without a heartbeat for so long is gone. 3 s.
	SilentNS int64
	// TickNS is how often time passes for the planner. 1 s.
	TickNS int64

	// What follows is of the dynamo-like planner only.

	Target Target // empty: throughput
	// LoadLoop adds the load loop to target sla, whose default has it off. The
	// throughput loop then only says how few workers there may be.
	LoadLoop bool
	// LoadNS and ThroughputNS are the intervals of the loops. 5 s, 180 s.
	LoadNS, ThroughputNS int64
	// TTFTSeconds and ITLSeconds are the targets of sla. 0.5 s, 0.05 s.
	TTFTSeconds, ITLSeconds float64
	// QueueUp, QueueDown, KVUp, KVDown are the thresholds of target load: queued
	// prompt tokens per worker, and share of KV memory.
	QueueUp, QueueDown, KVUp, KVDown float64
	// FloorOff leaves out the lower bound of the budget. As shipped there is none, and
	// an idle pool shrinks; with it the accelerators are pinned and only their use
	// changes, which is kinder on a fixed cluster.
	FloorOff bool
	// MinEndpoint is how many workers either side keeps. 1.
	MinEndpoint int
	// Sensitivity is how far below the target a side must be to give a worker back. 0.8.
	Sensitivity float64
	// Samples is how many reports of each worker come before the first decision. 5.
	Samples   int
	Predictor string // empty: constant
	// Cal says how long work takes on one worker; nil: measured from reports.
	Cal *calib.Calibration
}

func (c *Config) defaults() {
	set(&c.SilentNS, 3_000_000_000)
	set(&c.TickNS, 1_000_000_000)
	set(&c.LoadNS, 5_000_000_000)
	set(&c.ThroughputNS, 180_000_000_000)
	set(&c.TTFTSeconds, 0.5)
	set(&c.ITLSeconds, 0.05)
	set(&c.MinEndpoint, 1)
	set(&c.Sensitivity, 0.8)
	set(&c.Samples, 5)
	set(&c.Prefill, 1)
	if c.Target == "" {
		c.Target = TargetThroughput
	}
	if c.Predictor == "" {
		c.Predictor = PredictConstant
	}
}

// Check reports the first setting that no baseline has.
func (c *Config) Check() error {
	switch c.Target {
	case "", TargetThroughput, TargetLatency, TargetLoad, TargetSLA:
	default:
		return fmt.Errorf("baseline: target is %q, known are throughput, latency, load, sla", c.Target)
	}
	switch c.Predictor {
	case "", PredictConstant, PredictKalman:
	default:
		return fmt.Errorf("baseline: predictor is %q, known are constant, kalman", c.Predictor)
	}
	if c.Target == TargetLoad && (c.QueueUp <= c.QueueDown || c.KVUp <= c.KVDown) {
		return fmt.Errorf("baseline: target load scales up at %g tokens and %g of the memory, down at %g and %g; up must be above down",
			c.QueueUp, c.KVUp, c.QueueDown, c.KVDown)
	}
	return nil
}

func (c *Config) loadLoop() bool { return c.Target != TargetSLA || c.LoadLoop }

func set[T int | int64 | float64](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}
