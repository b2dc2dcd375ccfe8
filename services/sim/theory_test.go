package sim

import (
	"math"
	"testing"
)

// TestMD1: turns of equal length that arrive by chance at one prefill executor wait as
// long as in M/D/1, ρT/(2(1-ρ)) on average.
func TestMD1(t *testing.T) {
	if testing.Short() {
		t.Skip("75,000 turns")
	}
	cal := toyCal(t)
	// 400 agents that think for 100 s on average ask 4 times a second each 100 ms of
	// work. An agent thinks for so long that arrivals hardly depend on the queue.
	for _, agents := range []int{400, 550} {
		sc := toy(t, `"duration_s":10000,"discard_s":500,"phases":[{"workload":"probe"}]`)
		sc.Cluster.Workers = 2
		sys := System{Name: "md1", Prefill: 1, Tier: TierNone, Order: OrderLRU}
		sys.Route.DirectMax = -1
		quiet := run(t, sc, sys, Options{Cal: cal, Seed: 7, Concurrency: 1, MaxS: 1e5})
		f := run(t, sc, sys, Options{Cal: cal, Seed: 7, Concurrency: agents, MaxS: 1e5})
		service := 0.1
		rho := f.TurnsPerS * service
		want := rho * service / (2 * (1 - rho))
		got := f.TTFT.Mean - quiet.TTFT.Mean
		t.Logf("%d agents: load %.3f, wait %.2f ms, M/D/1 %.2f ms, busy %.3f", agents, rho, got*1e3, want*1e3, f.BusyP)
		if math.Abs(got/want-1) > 0.03 {
			t.Errorf("%d agents: turns wait %.2f ms, in M/D/1 %.2f", agents, got*1e3, want*1e3)
		}
		if math.Abs(f.BusyP/rho-1) > 0.01 {
			t.Errorf("%d agents: busy for a share of %.3f, load %.3f", agents, f.BusyP, rho)
		}
	}
}

// TestLittle: sessions at once = turns per second · (time of a turn + wait for a tool).
func TestLittle(t *testing.T) {
	cal := toyCal(t)
	sc := toy(t, `"duration_s":2000,"discard_s":200,"phases":[{"mix":{"agent":60}}]`)
	for _, name := range []string{"static:1", "static:2", "mixed", "weir"} {
		waits, n := 0.0, 0
		o := Options{Cal: cal, Seed: 2}
		last := map[string]float64{}
		o.Trace = func(r TurnRecord) {
			if at, ok := last[r.Session]; ok && r.End > 200 {
				waits += r.Ready - at
				n++
			}
			last[r.Session] = r.End
		}
		f := run(t, sc, system(t, name, cal), o)
		// A session's last turn is followed by none: a new session begins at once.
		sessions := f.TurnsPerS*f.E2E.Mean + waits/f.CountedS
		t.Logf("%s: %.1f turns/s of %.2f s, waits of %.2f s: %.2f sessions", name, f.TurnsPerS, f.E2E.Mean, waits/float64(n), sessions)
		if math.Abs(sessions/60-1) > 0.03 {
			t.Errorf("%s: %.2f sessions at once, 60 ran", name, sessions)
		}
	}
}
