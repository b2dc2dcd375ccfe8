package agree

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/weir-dev/weir/e2e/scenarios"
)

// Options of a comparison.
type Options struct {
	Model string // a calibration of the shift; empty for its first
	Size  Size
	Speed float64
	// Tolerance is how many seconds apart the same decision may be in both logs.
	// 0 means 10: ten decisions of the planner.
	ToleranceS float64
	// Record is a folder for what the live planner and router were told; empty for none.
	Record string
}

// Outcome is one policy both ways.
type Outcome struct {
	Policy Policy  `json:"policy"`
	Model  string  `json:"model"`
	Speed  float64 `json:"speed"`
	Agreement
	Simulated *Played `json:"simulated_run"`
	Real      *Played `json:"live_run"`
}

// Run plays both policies both ways.
func Run(ctx context.Context, o Options, emit func(*Outcome)) (out []*Outcome, err error) {
	set, err := scenarios.Find(".")
	if err != nil {
		return nil, err
	}
	if o.Model == "" {
		o.Model = set.Models(scenarios.Shift)[0]
	}
	if o.ToleranceS == 0 {
		o.ToleranceS = 10
	}
	for _, policy := range [...]Policy{Weir, Static} {
		v, agents, err := virtual(ctx, set, o.Model, o.Size, o.Speed, policy)
		if err != nil {
			return out, fmt.Errorf("agree: %s, simulated: %w", policy, err)
		}
		record := ""
		if o.Record != "" {
			record = filepath.Join(o.Record, string(policy))
		}
		l, err := live(ctx, set, o.Model, o.Size, o.Speed, policy, agents, record)
		if err != nil {
			return out, fmt.Errorf("agree: %s, live: %w", policy, err)
		}
		one := &Outcome{Policy: policy, Model: o.Model, Speed: o.Speed, Agreement: Compare(v.Changes, l.Changes, o.ToleranceS), Simulated: v, Real: l}
		one.SplitShare = splitShare(v.Changes, l.Changes, max(v.MakespanS, l.MakespanS))
		out = append(out, one)
		if emit != nil {
			emit(one)
		}
	}
	return out, nil
}
