package workload

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// Fault is a way in which what agents say is wrong.
type Fault string

// The faults.
const (
	// FaultInverted events say the opposite: a wait for a tool is one for the user or
	// the end of the branch, a wait for the user a short tool or the end of the session,
	// an end or a compaction a branch that is back in a second, a long wait a short one.
	FaultInverted Fault = "inverted"
	// FaultDropped events are never said.
	FaultDropped Fault = "dropped"
	// FaultLate events come half a minute late, heavy-tailed: often after the next call.
	FaultLate Fault = "late"
)

// Faults lists them.
func Faults() []Fault { return []Fault{FaultInverted, FaultDropped, FaultLate} }

const faultSecond = int64(1e9)

// lateMedian, lateSigma and lateMost are the lognormal delay of late events.
const (
	lateMedian = 30 * faultSecond
	lateSigma  = 1
	lateMost   = 3600 * faultSecond
)

// Distort returns s with each event of its agents wrong with probability p. The calls
// stay what they are; equal arguments give equal schedules.
func Distort(s *Schedule, f Fault, p float64, seed uint64) (*Schedule, error) {
	if !slices.Contains(Faults(), f) {
		return nil, fmt.Errorf("workload: fault %q is not one of %v", f, Faults())
	}
	if !(p >= 0 && p <= 1) {
		return nil, fmt.Errorf("workload: %g is not a probability", p)
	}
	r := rand.New(rand.NewPCG(seed, 0xfa017))
	out := &Schedule{Name: s.Name, Seed: s.Seed, Sessions: s.Sessions, Calls: slices.Clone(s.Calls)}
	for i := range out.Calls {
		c := &out.Calls[i]
		if len(c.Say) == 0 {
			continue
		}
		said := c.Say
		c.Say = make([]Say, 0, len(said))
		for _, y := range said {
			if r.Float64() >= p {
				c.Say = append(c.Say, y)
				continue
			}
			switch f {
			case FaultInverted:
				c.Say = append(c.Say, invert(y, r))
			case FaultLate:
				late := float64(lateMedian) * math.Exp(lateSigma*r.NormFloat64())
				y.After += int64(min(late, float64(lateMost)))
				c.Say = append(c.Say, y)
			case FaultDropped:
			}
		}
		slices.SortStableFunc(c.Say, func(a, b Say) int { return cmp.Compare(a.After, b.After) })
	}
	return out, nil
}

// middle is where expected waits are mirrored: what lasts longer is said to be as much
// shorter.
const middle = 10 * faultSecond

// invert says the opposite of y.
func invert(y Say, r *rand.Rand) Say {
	out := Say{After: y.After, Line: y.Line}
	x := r.Float64()
	switch schemas.EventKind(y.Kind) {
	case schemas.EventToolWait:
		switch {
		case x < 0.5:
			out.Kind = string(schemas.EventUserWait)
		case x < 0.75:
			out.Kind = string(schemas.EventBranchEnd)
		default:
			out = y
			out.Expect = lateMost
			if y.Expect > 0 {
				out.Expect = min(max(int64(float64(middle)*float64(middle)/float64(y.Expect)), 1), lateMost)
			}
		}
	case schemas.EventUserWait:
		if x < 0.25 {
			out.Kind = string(schemas.EventSessionEnd)
			break
		}
		out.Kind, out.Tool, out.Expect = string(schemas.EventToolWait), "read", faultSecond
	case schemas.EventBranchEnd, schemas.EventSessionEnd, schemas.EventCompacted, schemas.EventPrefixRewrite:
		out.Kind, out.Tool, out.Expect = string(schemas.EventToolWait), "read", faultSecond
	default:
		return y // a fork has no opposite
	}
	return out
}

// Mute returns s without what keep does not let through: it is given each event and
// returns it, perhaps changed, and whether it is said at all.
func Mute(s *Schedule, keep func(Say) (Say, bool)) *Schedule {
	out := &Schedule{Name: s.Name, Seed: s.Seed, Sessions: s.Sessions, Calls: slices.Clone(s.Calls)}
	for i := range out.Calls {
		c := &out.Calls[i]
		said := c.Say
		c.Say = nil
		for _, y := range said {
			if y, ok := keep(y); ok {
				c.Say = append(c.Say, y)
			}
		}
	}
	return out
}
