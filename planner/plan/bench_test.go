package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-dev/weir/planner/plan"
	"github.com/weir-dev/weir/schemas"
)

// BenchmarkTick: one decision with 256 executors in 3 pools under pressure. A planner's cell has
// no more executors; 3 cells have a planner each.
func BenchmarkTick(b *testing.B) {
	c := newCell(1, plan.Config{Model: glm()}, 256, 64)
	for i, x := range c.execs {
		x.pool = fmt.Sprintf("m%d", i%3)
	}
	c.run(3)
	pools := []schemas.PoolLoad{{Pool: "m0"}, {Pool: "m1"}, {Pool: "m2"}}
	now := c.now
	tick := func() {
		now += schemas.Time(time.Second)
		for i := range pools {
			l := &pools[i]
			l.Turns, l.Uncached, l.Attention = l.Turns+1000, l.Uncached+2_700_000, l.Attention+1e11
			l.Ended, l.Output, l.Squares = l.Ended+1000, l.Output+1_000_000, l.Squares+1.6e10
			l.WaitPrefill, l.WaitTokens, l.Decoding, l.DecodeTokens = 900, 2_500_000, 9000, 300_000_000
		}
		m := &schemas.Load{AtNS: int64(now), Router: 1, Pools: append([]schemas.PoolLoad(nil), pools...)}
		c.p.Step(now, &schemas.Msg{Kind: schemas.KindLoad, Load: m}, nil)
	}
	var most time.Duration
	for b.Loop() {
		b.StopTimer()
		for _, x := range c.execs {
			h := &schemas.Heartbeat{Executor: x.id, Boot: "b1", Pool: x.pool, Role: x.role, Epoch: x.epoch, Slots: 256, KVTokens: x.kv, Size: 1}
			c.p.Step(now, &schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: h}, nil)
			x.rep.PrefillTokens, x.rep.PrefillNS, x.rep.DecodeNS = x.rep.PrefillTokens+60_000, x.rep.PrefillNS+9e8, x.rep.DecodeNS+1e8
			r := x.rep
			r.Executor, r.AtNS = x.id, int64(now)+1
			c.p.Step(now, &schemas.Msg{Kind: schemas.KindReport, Report: &r}, nil)
		}
		tick()
		now += schemas.Time(time.Second)
		b.StartTimer()
		at := time.Now()
		c.p.Step(now, &schemas.Msg{Kind: schemas.KindTick}, nil)
		most = max(most, time.Since(at))
	}
	b.ReportMetric(float64(most.Microseconds())/1e3, "ms/max")
}
