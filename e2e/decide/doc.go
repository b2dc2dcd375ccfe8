// Package decide measures what one decision of the planner costs, in cells of full size.
// The actor that ships gets the messages of a busy cell, made here, and only its own
// steps are timed: no bus, no encoding. routecost does the same for the router.
//
// planner.go feeds heartbeats, reports and a load that swings, so that roles change all
// the time.
package decide

import (
	"slices"
	"time"
)

// Size is how much is fed.
type Size struct {
	Cells     int // side by side in this process, as on a machine that serves several
	Executors int // per cell
	Seconds   int // of a cell's time
}

// Full is the size that the figures are taken at.
func Full() Size { return Size{Cells: 3, Executors: 256, Seconds: 300} }

// Times sums up durations.
type Times struct {
	N             int
	P50, P99, Max time.Duration
}

func times(ds []time.Duration) Times {
	slices.Sort(ds)
	if len(ds) == 0 {
		return Times{}
	}
	at := func(q float64) time.Duration { return ds[min(len(ds)-1, int(q*float64(len(ds))))] }
	return Times{N: len(ds), P50: at(0.5), P99: at(0.99), Max: ds[len(ds)-1]}
}
