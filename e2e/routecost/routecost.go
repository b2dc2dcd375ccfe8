// Package routecost measures what a decision costs the router of a full cell: three cells
// of 256 executors, in each of which 4,096 turns wait, agents with a common system prompt
// and contexts of up to 100,000 tokens.
package routecost

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/planner/route/crowd"
	"github.com/weir-dev/weir/schemas"
)

// The size of what is measured.
const (
	Cells     = 3
	Executors = 256
	Waiting   = 4096
	// rounds of so many messages each; the round whose p99 is least counts, because the
	// others tell what else the machine did.
	rounds, perRound = 5, 30_000
	most             = 3_000_000 // messages until the cells are full
)

// Cost of one message to a router.
type Cost struct {
	P50, P99, Max time.Duration // of the best round
	Messages      int           // in all rounds
	Placed        uint64        // jobs in all rounds and cells
}

// Measure fills the cells and measures. It takes some ten seconds.
func Measure(ctx context.Context) (Cost, error) {
	var crowds [Cells]*crowd.Crowd
	var routers [Cells]*route.Router
	for i := range Cells {
		cell := fmt.Sprintf("c%d", i)
		crowds[i] = crowd.New(crowd.Config{Cell: cell, Executors: Executors, Waiting: Waiting, Seed: uint64(i)})
		routers[i] = route.New(route.Config{Cell: cell, Admit: true})
	}
	var out []schemas.Msg
	step := func(n int) time.Duration {
		c := crowds[n%Cells]
		m := c.Next()
		start := time.Now()
		out = routers[n%Cells].Step(c.Now(), &m, out[:0])
		took := time.Since(start)
		c.Took(out)
		return took
	}
	n := 0
	for full := false; !full; n++ {
		step(n)
		full = n > 100_000
		for _, c := range crowds {
			full = full && c.Waiting() >= Waiting*9/10
		}
		if n > most {
			return Cost{}, fmt.Errorf("routecost: after %d messages only %d turns wait", n, crowds[0].Waiting())
		}
		if n%10_000 == 0 && ctx.Err() != nil {
			return Cost{}, ctx.Err()
		}
	}
	placed := func() (all uint64) {
		for _, r := range routers {
			all += r.Counts().Placed
		}
		return all
	}
	best, before := Cost{P99: time.Hour}, placed()
	took := make([]time.Duration, perRound)
	for range rounds {
		if ctx.Err() != nil {
			return Cost{}, ctx.Err()
		}
		for i := range took {
			took[i] = step(n)
			n++
		}
		slices.Sort(took)
		if p99 := took[perRound*99/100]; p99 < best.P99 {
			best.P50, best.P99, best.Max = took[perRound/2], p99, took[perRound-1]
		}
	}
	best.Messages, best.Placed = rounds*perRound, placed()-before
	return best, nil
}
