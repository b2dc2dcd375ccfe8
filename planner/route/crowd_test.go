package route_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/planner/route/crowd"
	"github.com/weir-dev/weir/schemas"
)

// cells are three full cells of 256 executors, with 4,096 turns that wait in each.
type cells struct {
	crowds  [3]*crowd.Crowd
	routers [3]*route.Router
	out     []schemas.Msg
}

func newCells(tb testing.TB) *cells {
	c := &cells{}
	for i := range c.crowds {
		c.crowds[i] = crowd.New(crowd.Config{Cell: "c0", Executors: 256, Waiting: 4096, Seed: uint64(i)})
		c.routers[i] = route.New(route.Config{Cell: "c0"})
	}
	for n := 0; c.crowds[0].Waiting() < 4000 || n < 100_000; n++ {
		if c.step(n); n > 1_000_000 {
			tb.Fatalf("only %d turns wait", c.crowds[0].Waiting())
		}
	}
	return c
}

func (c *cells) step(n int) (took time.Duration, kind schemas.Kind) {
	i := n % len(c.crowds)
	m := c.crowds[i].Next()
	start := time.Now()
	c.out = c.routers[i].Step(c.crowds[i].Now(), &m, c.out[:0])
	took = time.Since(start)
	c.crowds[i].Took(c.out)
	return took, m.Kind
}

// BenchmarkDecision is what one message costs the router of a full cell.
func BenchmarkDecision(b *testing.B) {
	c := newCells(b)
	var took []time.Duration
	n := 0
	for b.Loop() {
		d, _ := c.step(n)
		took = append(took, d)
		n++
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-us")
	b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-us")
	b.ReportMetric(float64(c.routers[0].Counts().Placed), "placed")
}
