package scenarios

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/weir-dev/weir/services/sim"
)

// Point is where on its grid a scenario runs.
type Point struct {
	Load        float64 `json:"load"`
	PeriodS     float64 `json:"period_s,omitempty"`
	Concurrency int     `json:"concurrency,omitempty"`
}

func (p Point) String() string {
	switch {
	case p.PeriodS > 0:
		return fmt.Sprintf("period %g s", p.PeriodS)
	case p.Concurrency > 0:
		return fmt.Sprintf("%d sessions", p.Concurrency)
	}
	return fmt.Sprintf("load %g", p.Load)
}

// Job is one run.
type Job struct {
	Scenario string `json:"scenario"`
	Model    string `json:"model"`
	// First runs the first phase alone, to tune a start for it.
	First bool `json:"first,omitempty"`
	// ForS shortens a run by time, to choose a setting by; no figure comes from such a run.
	ForS   float64 `json:"for_s,omitempty"`
	Derate float64 `json:"derate"`
	Point
	Arm  Arm    `json:"arm"`
	Seed uint64 `json:"seed"`
}

func (j Job) String() string {
	first := ""
	if j.First {
		first = " first phase"
	}
	if j.ForS > 0 {
		first = fmt.Sprintf(" for %g s", j.ForS)
	}
	return fmt.Sprintf("%s%s, %s, %s, %s, seed %d", j.Scenario, first, j.Model, j.Point, j.Arm, j.Seed)
}

func (j Job) key() string {
	b, err := json.Marshal(j)
	if err != nil {
		panic(err) // numbers and strings only
	}
	return string(b)
}

// Run makes one run of a set.
func (s *Set) Run(ctx context.Context, j Job) (*sim.Figures, error) {
	sc, cal := s.Scenarios[j.Scenario], s.cals[calKey(j.Model, j.Derate)]
	if sc == nil || cal == nil {
		return nil, fmt.Errorf("scenarios: there is no scenario %q, model %q or derate %g", j.Scenario, j.Model, j.Derate)
	}
	if j.First {
		first := *sc
		first.Phases = sc.Phases[:1]
		sc = &first
	}
	if j.ForS > 0 {
		short := *sc
		short.DurationS = j.ForS
		sc = &short
	}
	sys, err := j.Arm.System(sc, cal, j.Seed)
	if err != nil {
		return nil, err
	}
	return sim.Run(ctx, sc, sys, sim.Options{Cal: cal, Load: j.Load, Seed: j.Seed, PeriodS: j.PeriodS, Concurrency: j.Concurrency})
}

// score is what a baseline is tuned for, the larger the better: the makespan of a fixed
// work, turns per second of a fixed time.
func score(scenario string, f *sim.Figures) float64 {
	if scenario == Shift {
		return -f.MakespanS
	}
	return f.TurnsPerS
}
