package plan

import (
	"time"

	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/planner/flip"
	"github.com/weir-dev/weir/schemas"
)

// Config of a planner. The zero value of a field means its default.
type Config struct {
	Cell  string
	Epoch uint64 // of the planner's lease; decisions are named by it
	// Mode until somebody sets another on mode.<cell>. act.
	Mode schemas.Mode
	// Model is what work costs, by pool; pools without one are measured.
	Models map[string]demand.Model
	// Model is that of pools that Models does not name; the zero value: measured.
	Model demand.Model

	Rules flip.Config

	Tick time.Duration // between decisions. 1 s
	// Silent: an executor without a heartbeat for so long is dead. 3 s.
	Silent time.Duration
	// Grace: for so long after the start, or after the bus was away, nothing is decided:
	// others must be heard first. 3 s.
	Grace time.Duration
	// ReportAge and LoadAge: what is older is stale. Three reports, 6 s; six loads, 3 s.
	ReportAge, LoadAge time.Duration
	// Apply: a role change that is not in force after so long, or twice that while the
	// executor still drains, is given up, and it is not asked again for as long as Avoid. Twice the executors' own deadline, 20 s; 1 min.
	Apply, Avoid time.Duration
	// Hand: for so long the planner leaves a role alone that people set. 5 min.
	Hand time.Duration
	// Unread: an assignment that refused another one, and was not read for so long, cannot
	// be read and is replaced. A consumer may stand still for some 20 s when a server of the bus
	// dies. 30 s.
	Unread time.Duration
	// Fit: an executor must be fit for so long before it gets work again. 5 s.
	Fit time.Duration
	// Start: first roles are given when no other executor appeared for so long. 1 s.
	Start time.Duration
	// Forget: an executor that is away for so long is forgotten. 10 min.
	Forget time.Duration
	// Repeat: a decision that changes nothing is published again after this. 1 min.
	Repeat time.Duration
	// AbsorbMax bounds the stall of the decodes beside a prompt that a decode executor
	// computes itself. 500 ms.
	AbsorbMax time.Duration
	// FlipCost is assumed until flips were measured. 500 ms.
	FlipCost time.Duration
	// InFlight is the share of a pool's executors whose roles may change at once; one
	// always may. 0.34.
	InFlight float64
	// MaxExecutors and MaxPools bound what is known; more are counted as ignored. A cell has 256; 1,024, 64.
	MaxExecutors, MaxPools int
}

func (c *Config) defaults() {
	if c.Mode == "" {
		c.Mode = schemas.ModeAct
	}
	c.Rules.Defaults()
	for _, d := range []struct {
		p *time.Duration
		v time.Duration
	}{
		{&c.Tick, time.Second},
		{&c.Silent, 3 * time.Second},
		{&c.Grace, 3 * time.Second},
		{&c.ReportAge, 6 * time.Second},
		{&c.LoadAge, 3 * time.Second},
		{&c.Apply, 20 * time.Second},
		{&c.Avoid, time.Minute},
		{&c.Hand, 5 * time.Minute},
		{&c.Unread, 30 * time.Second},
		{&c.Fit, 5 * time.Second},
		{&c.Start, time.Second},
		{&c.Forget, 10 * time.Minute},
		{&c.Repeat, time.Minute},
		{&c.AbsorbMax, 500 * time.Millisecond},
		{&c.FlipCost, 500 * time.Millisecond},
	} {
		if *d.p == 0 {
			*d.p = d.v
		}
	}
	if c.InFlight == 0 {
		c.InFlight = 0.34
	}
	if c.MaxExecutors == 0 {
		c.MaxExecutors = 1024
	}
	if c.MaxPools == 0 {
		c.MaxPools = schemas.MaxPools
	}
}
