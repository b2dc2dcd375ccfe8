package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
)

// random is a distribution: uniform between two numbers, lognormal with bounds, or
// exponential.
type random struct {
	Uniform     []float64 `json:"uniform"`
	Exponential *struct {
		Mean float64 `json:"mean"`
	} `json:"exponential"` // in no registered workload: for comparisons with theory
	Lognormal *struct {
		Median float64 `json:"median"`
		Sigma  float64 `json:"sigma"`
		Min    float64 `json:"min"`
		Max    float64 `json:"max"`
	} `json:"lognormal"`
}

func (r *random) check() error {
	switch {
	case r.Lognormal != nil && r.Uniform == nil:
		if l := r.Lognormal; l.Median <= 0 || l.Sigma < 0 || l.Max > 0 && l.Max < l.Min {
			return fmt.Errorf("lognormal of median %g, sigma %g, from %g to %g", l.Median, l.Sigma, l.Min, l.Max)
		}
	case r.Exponential != nil && r.Exponential.Mean > 0:
	case len(r.Uniform) == 2 && r.Uniform[0] <= r.Uniform[1] && r.Uniform[0] >= 0:
	default:
		return fmt.Errorf("a distribution is uniform [from, to] or lognormal")
	}
	return nil
}

// draw returns a number; a lognormal one is cut at its bounds.
func (r *random) draw(rnd *rand.Rand) float64 {
	if l := r.Lognormal; l != nil {
		x := l.Median * math.Exp(l.Sigma*rnd.NormFloat64())
		if l.Max > 0 {
			x = min(x, l.Max)
		}
		return max(x, l.Min)
	}
	if r.Exponential != nil {
		return r.Exponential.Mean * rnd.ExpFloat64()
	}
	return r.Uniform[0] + (r.Uniform[1]-r.Uniform[0])*rnd.Float64()
}

// most is the largest number drawn.
func (r *random) most() float64 {
	if r.Lognormal != nil {
		return r.Lognormal.Max
	}
	if r.Exponential != nil {
		return 0
	}
	return r.Uniform[1]
}

// Workload is how sessions of one class behave.
type Workload struct {
	Name        string  `json:"-"`
	Turns       [2]int  `json:"turns"` // from, to, both included
	First       *random `json:"first_prompt_tokens"`
	Shared      int     `json:"shared_prefix_tokens"`
	New         *random `json:"new_tokens"` // of a turn behind the first
	Output      *random `json:"output_tokens"`
	Wait        *random `json:"wait_s"`               // between an answer and the next turn
	Limit       int     `json:"context_limit_tokens"` // 0 for none
	AfterLimit  int     `json:"after_compaction_tokens"`
	Replay      string  `json:"replay"`
	seedOfClass uint64
}

func parseWorkloads(b []byte) (map[string]*Workload, error) {
	var f struct {
		Schema    string               `json:"schema"`
		Closed    bool                 `json:"closed_loop"`
		Workloads map[string]*Workload `json:"workloads"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%w: workloads: %w", ErrScenario, err)
	}
	if f.Schema != "weir.workloads.v1" || !f.Closed {
		return nil, fmt.Errorf("%w: workloads of schema %q, closed_loop %v; known is weir.workloads.v1, closed", ErrScenario, f.Schema, f.Closed)
	}
	for name, w := range f.Workloads {
		w.Name, w.seedOfClass = name, hash64(name)
		if w.Replay != "" {
			delete(f.Workloads, name) // recorded sessions are not generated
			continue
		}
		if err := w.check(); err != nil {
			return nil, fmt.Errorf("%w: workload %s: %w", ErrScenario, name, err)
		}
	}
	return f.Workloads, nil
}

func (w *Workload) check() error {
	switch {
	case w.Turns[0] < 1 || w.Turns[1] < w.Turns[0]:
		return fmt.Errorf("turns are %v", w.Turns)
	case w.First == nil || w.Output == nil:
		return fmt.Errorf("first_prompt_tokens and output_tokens are needed")
	case w.Turns[1] > 1 && (w.New == nil || w.Wait == nil):
		return fmt.Errorf("sessions of several turns need new_tokens and wait_s")
	case w.Limit > 0 && w.AfterLimit >= w.Limit:
		return fmt.Errorf("a compaction leaves %d of %d tokens", w.AfterLimit, w.Limit)
	}
	for _, r := range []*random{w.First, w.New, w.Output, w.Wait} {
		if r == nil {
			continue
		}
		if err := r.check(); err != nil {
			return err
		}
	}
	return nil
}

// hash64 is FNV-1a.
func hash64(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
