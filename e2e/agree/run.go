package agree

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/weir-dev/weir/e2e/scenarios"
)

// Options of a comparison.
type Options struct {
	Model string // a calibration of the shift; empty for its first
	Size  Size
	Speed float64
	// WindowS is how many seconds of a run are compared; 0 for all.
	WindowS float64
	// ToleranceS is how many seconds apart the same decision may be in both logs. 0 means
	// 10: what a decision is made from is averaged over 6 s and reported every 2 s, a look
	// comes once a second, and jobs and reports take their time on a real bus.
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

func (o *Outcome) String() string {
	v, l := o.Simulated, o.Real
	return fmt.Sprintf("%s, speed %g, the first %.0f s: %s; %.1f turns per second simulated and %.1f live, %.2f s and %.2f s to the first token",
		o.Policy, o.Speed, v.MakespanS, o.Agreement, v.TurnsPerS, l.TurnsPerS, v.TTFTMean, l.TTFTMean)
}

// both plays one policy both ways, at the speed asked for or the highest that this
// machine's bus allows.
func (o *Options) both(ctx context.Context, set *scenarios.Set, policy Policy) (v, l *Played, err error) {
	record := ""
	if o.Record != "" {
		record = filepath.Join(o.Record, string(policy))
	}
	for range speeds {
		var agents []*session
		if v, agents, err = virtual(ctx, set, o.Model, o.Size, o.Speed, o.WindowS, policy); err != nil {
			return nil, nil, fmt.Errorf("agree: %s, simulated: %w", policy, err)
		}
		l, err = live(ctx, set, o.Model, o.Size, o.Speed, o.WindowS, policy, agents, record)
		if err == nil {
			return v, l, nil
		}
		most := allowed(err.Error())
		if most == 0 || most >= o.Speed {
			break
		}
		o.Speed = max(1, math.Floor(10*speedMargin*most)/10)
	}
	return nil, nil, fmt.Errorf("agree: %s, live: %w", policy, err)
}

const (
	// speeds bounds how often a lower speed is tried.
	speeds = 4
	// speedMargin is what is taken of the speed that a refusal allows: the bus is not
	// equally fast at every start.
	speedMargin = 0.8
)

// refusal is how a stack says which speed it would allow.
var refusal = regexp.MustCompile(`At most --speed ([0-9.]+)`)

// allowed is the speed that a refusal allows, 0 when it is none.
func allowed(text string) float64 {
	m := refusal.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(m[1], "."), 64)
	if err != nil {
		return 0
	}
	return v
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
		v, l, err := o.both(ctx, set, policy)
		if err != nil {
			return out, err
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
