package agree

import (
	"fmt"
	"math"

	"github.com/weir-dev/weir/schemas"
)

// Change is one role change of a log: seconds since the first turn.
type Change struct {
	At       float64      `json:"at_s"`
	Executor int          `json:"executor"` // by its place in the order in which all started
	To       schemas.Role `json:"to"`
}

// Agreement is how far two logs say the same.
type Agreement struct {
	Virtual int `json:"virtual"` // changes
	Live    int `json:"live"`
	// Matched are changes of both logs, in the same order, to the same role, within the
	// tolerance. Of them Ties name different executors: executors of one role are
	// interchangeable, and which has least to hand over at that moment is chance.
	Matched int `json:"matched"`
	Ties    int `json:"ties"`
	// Share is Matched over the changes of the longer log; 1 when neither has any.
	Share      float64 `json:"share"`
	ToleranceS float64 `json:"tolerance_s"`
	MeanLagS   float64 `json:"mean_lag_s"` // live behind virtual, of what matched
	MaxLagS    float64 `json:"max_lag_s"`  // its largest size
	// SplitShare is the share of the time in which both had the same number of
	// executors that prefill.
	SplitShare float64 `json:"split_share"`
	// Pairs are the changes of both logs in order, matched ones side by side.
	Pairs []Pair `json:"pairs"`
}

// Pair is a change in both logs, or in one.
type Pair struct {
	Virtual *Change `json:"virtual,omitempty"`
	Live    *Change `json:"live,omitempty"`
}

func (a Agreement) String() string {
	return fmt.Sprintf("%d of %d and %d role changes agree within %.0f s, %d with another executor of the same role; the splits are equal %.0f %% of the time",
		a.Matched, a.Virtual, a.Live, a.ToleranceS, a.Ties, 100*a.SplitShare)
}

// Compare pairs the changes of two logs, each in order of time. Pairs do not cross; of
// all pairings the one with the most pairs counts, and of those the one with the fewest
// ties.
func Compare(virtual, live []Change, tolerance float64) Agreement {
	a := Agreement{Virtual: len(virtual), Live: len(live), Share: 1, ToleranceS: tolerance}
	n, m := len(virtual), len(live)
	// best[i][j] is the value of pairing what follows i and j: pairs count two, ties
	// one less in 1000.
	best := make([][]int, n+1)
	for i := range best {
		best[i] = make([]int, m+1)
	}
	value := func(i, j int) int {
		v, l := virtual[i], live[j]
		switch {
		case v.To != l.To || math.Abs(v.At-l.At) > tolerance:
			return 0
		case v.Executor != l.Executor:
			return 1000
		}
		return 1001
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			best[i][j] = max(best[i+1][j], best[i][j+1])
			if v := value(i, j); v > 0 {
				best[i][j] = max(best[i][j], v+best[i+1][j+1])
			}
		}
	}
	lag := 0.0
	for i, j := 0, 0; i < n && j < m; {
		v := value(i, j)
		switch {
		case v > 0 && best[i][j] == v+best[i+1][j+1]:
			a.Matched++
			if v == 1000 {
				a.Ties++
			}
			d := live[j].At - virtual[i].At
			lag += d
			a.MaxLagS = max(a.MaxLagS, math.Abs(d))
			a.Pairs = append(a.Pairs, Pair{&virtual[i], &live[j]})
			i, j = i+1, j+1
		case best[i][j] == best[i+1][j]:
			a.Pairs = append(a.Pairs, Pair{Virtual: &virtual[i]})
			i++
		default:
			a.Pairs = append(a.Pairs, Pair{Live: &live[j]})
			j++
		}
	}
	for i := a.Matched + a.only(false); i < n; i++ {
		a.Pairs = append(a.Pairs, Pair{Virtual: &virtual[i]})
	}
	for j := a.Matched + a.only(true); j < m; j++ {
		a.Pairs = append(a.Pairs, Pair{Live: &live[j]})
	}
	if longer := max(n, m); longer > 0 {
		a.Share = float64(a.Matched) / float64(longer)
	}
	if a.Matched > 0 {
		a.MeanLagS = lag / float64(a.Matched)
	}
	return a
}

// only counts the pairs that have a change in one log only, so far.
func (a *Agreement) only(live bool) (n int) {
	for _, p := range a.Pairs {
		if live && p.Virtual == nil || !live && p.Live == nil {
			n++
		}
	}
	return n
}

// splitShare is the share of the first end seconds in which both logs have the same
// number of executors that prefill, from the same start on. Changes take force when they
// are decided here; how long they take is alike in both.
func splitShare(virtual, live []Change, end float64) float64 {
	if end <= 0 {
		return 1
	}
	same, at := 0.0, 0.0
	v, l := 0, 0
	diff := 0 // live's executors that prefill, more than virtual's
	for at < end {
		next := end
		if v < len(virtual) {
			next = min(next, virtual[v].At)
		}
		if l < len(live) {
			next = min(next, live[l].At)
		}
		if diff == 0 {
			same += max(0, next-at)
		}
		at = max(at, next)
		for ; v < len(virtual) && virtual[v].At <= at; v++ {
			diff -= step(virtual[v].To)
		}
		for ; l < len(live) && live[l].At <= at; l++ {
			diff += step(live[l].To)
		}
	}
	return same / end
}

func step(to schemas.Role) int {
	if to == schemas.RolePrefill {
		return 1
	}
	return -1
}
