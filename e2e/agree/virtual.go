package agree

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weir-dev/weir/e2e/scenarios"
	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/sim"
)

// Policy is what is run both ways.
type Policy string

// The policies.
const (
	Weir   Policy = "weir"
	Static Policy = "static"
)

// startPrefill is how many executors prefill at the start with either policy.
const startPrefill = 4

// Played is one run, as far as it is compared.
type Played struct {
	// MakespanS is when the last turn ended, or the end of what is compared.
	MakespanS float64  `json:"makespan_s"`
	Turns     int      `json:"turns"`            // that ended
	Resent    int      `json:"resent,omitempty"` // of a live run: sent in full because the session was forgotten
	TurnsPerS float64  `json:"turns_per_s"`
	TTFTMean  float64  `json:"ttft_mean_s"`
	E2EMean   float64  `json:"e2e_mean_s"`
	Changes   []Change `json:"changes"`
}

// means fills in what is over all turns, from sums.
func (p *Played) means(ttft, e2e float64) {
	n := float64(max(1, p.Turns))
	p.TTFTMean, p.E2EMean = ttft/n, e2e/n
	if p.MakespanS > 0 {
		p.TurnsPerS = float64(p.Turns) / p.MakespanS
	}
}

// routes are the defaults of the live router where the simulated cell has its own.
var routes = route.Config{PrefillTokens: 2048, PrefillTPS: 1000}

// virtual simulates the scaled shift and returns the agents beside the figures. All of it
// is simulated, so that the script is whole; the figures are of the first window seconds.
func virtual(ctx context.Context, set *scenarios.Set, model string, size Size, speed, window float64, policy Policy) (*Played, []*session, error) {
	// Faster devices are a calibration whose times are divided. Both sides take the
	// derate of the file.
	cal, err := sim.LoadCalibration(filepath.Join(set.Dir, "calib"), model, 0)
	if err != nil {
		return nil, nil, err
	}
	cal.Derate *= speed
	sc := scale(set.Scenarios[scenarios.Shift], size, speed)
	out := &Played{}
	var records []sim.TurnRecord
	sys := sim.System{Name: string(policy), Prefill: startPrefill, Tier: sim.TierShared, Order: sim.OrderWeir, Route: routes}
	if policy == Weir {
		// As the live service makes it.
		sys.Planner = func(cell string, _ []string) schemas.Actor {
			return plan.New(plan.Config{Cell: cell, Epoch: 1, Model: demand.FromCalibration(cal)})
		}
	}
	f, err := sim.Run(ctx, sc, sys, sim.Options{
		Cal: cal, Seed: size.Seed,
		Trace: func(r sim.TurnRecord) { records = append(records, r) },
		Plans: func(at time.Duration, p *schemas.Plan) {
			if window == 0 || at.Seconds() <= window {
				out.Changes = append(out.Changes, changes(at.Seconds(), p, virtualExecutor)...)
			}
		},
	})
	if err != nil {
		return nil, nil, err
	}
	out.MakespanS = f.MakespanS
	if window > 0 {
		out.MakespanS = min(out.MakespanS, window)
	}
	var ttft, e2e float64
	for _, r := range records {
		if r.Failed == "" && (window == 0 || r.End <= window) {
			out.Turns++
			ttft, e2e = ttft+r.First-r.Ready, e2e+r.End-r.Ready
		}
	}
	out.means(ttft, e2e)
	return out, script(records), nil
}

// changes are the role changes of a decision. Standby and mixed have no place in a cell
// whose executors are all fit.
func changes(at float64, p *schemas.Plan, number func(string) (int, error)) []Change {
	if p.Mode != schemas.ModeAct {
		return nil
	}
	var out []Change
	for _, c := range p.Changes {
		n, err := number(c.Executor)
		if err != nil || c.To == c.From { // a change of what it absorbs
			continue
		}
		out = append(out, Change{At: at, Executor: n, To: c.To})
	}
	return out
}

// virtualExecutor is the number in e000, e001, ….
func virtualExecutor(id string) (int, error) {
	if len(id) < 2 || id[0] != 'e' {
		return 0, fmt.Errorf("agree: %q is no executor of the simulated cell", id)
	}
	return strconv.Atoi(id[1:])
}
