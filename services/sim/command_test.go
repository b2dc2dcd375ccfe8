package sim

import (
	"errors"
	"io"
	"math"
	"testing"

	"github.com/weir-dev/weir/schemas/calib"
	"github.com/weir-dev/weir/services/serve"
)

// TestFlags: numbers and names that mean nothing are refused before anything is read.
func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--load", "-1"}, {"--load", "NaN"}, {"--load", "0"}, {"--derate", "-3"}, {"--derate", "NaN"}, {"--restart", "-5s"}, {"-o", "yaml"},
	} {
		c := Command()
		c.SetArgs(append(args, "none.json"))
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		if err := c.Execute(); !errors.Is(err, serve.ErrUsage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestOptions: a run that would have no end of sessions is refused, not started.
func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Load: math.NaN()},
		{Load: math.Inf(1)},
		{Load: -1},
		{Load: 1e9},
		{PeriodS: math.NaN()},
		{Concurrency: -4},
		{Concurrency: maxSessions + 1},
	} {
		o.Cal = &calib.Calibration{}
		sc := &Scenario{Phases: []Phase{{Workload: "w"}}}
		sc.Cluster.Workers = 4
		if o.Load == 1e9 {
			sc.Phases[0].Concurrency = 8
		}
		sys := System{Name: "static:2", Prefill: 2, Tier: TierShared, Order: OrderWeir}
		if _, err := newWorld(sc, sys, o); !errors.Is(err, ErrScenario) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
