package route

import (
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// returned gives the newest job back.
func (g *rig) returned(reason string, busy int64) {
	j := g.jobs[len(g.jobs)-1]
	g.step(&schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{
		Header: schemas.H(), Job: j.Ready.Job, Attempt: j.Attempt, Stage: j.Stage, Executor: g.on[j.Ready.Job],
		Outcome: schemas.OutcomeReturned, Reason: reason, BusyNS: busy,
	}})
}

// TestReturnedWithProgress: a long answer under constant role changes is not given up,
// because each executor worked on it; a turn that nobody begins is.
func TestReturnedWithProgress(t *testing.T) {
	for _, c := range []struct {
		name   string
		busy   schemas.Time
		stay   schemas.Time // at each executor
		placed int
	}{
		{"a second of work each", second / 10, second, 101},
		{"a second in a queue each", 0, second, 32},
		{"given back at once", second / 10, second / 10, 32},
	} {
		g := newRig(t, Config{})
		beat := func() {
			for _, id := range []string{"a", "b"} {
				g.beat(schemas.Heartbeat{Executor: id, Node: "n", Role: schemas.RoleDecode, Slots: 4, PrefillTPS: 1000})
			}
		}
		beat()
		g.ready("u", 100, 0, "")
		for range 100 {
			if g.r.counts.Failed > 0 {
				break
			}
			g.now += c.stay
			g.returned("role changes", int64(c.busy))
			beat()
		}
		if len(g.jobs) != c.placed {
			t.Errorf("%s: placed %d times, want %d", c.name, len(g.jobs), c.placed)
		}
		last := 0
		for _, j := range g.jobs {
			if j.Attempt <= last {
				t.Fatalf("%s: attempt %d after %d", c.name, j.Attempt, last)
			}
			last = j.Attempt
		}
		// A router that starts now must not use an attempt again.
		g.r = New(Config{Cell: "c0"})
		g.step(&schemas.Msg{Kind: schemas.KindTick})
		g.step(&schemas.Msg{Kind: schemas.KindReady, Seq: 1, Ready: g.jobs[0].Ready})
		g.now += 2 * second
		beat()
		if next := g.jobs[len(g.jobs)-1].Attempt; next <= last {
			t.Errorf("%s: the next router begins with attempt %d, %d was used", c.name, next, last)
		}
	}
}

// TestLocalIsNoFate: a turn that was to be computed where it decodes, because that one did
// both, is computed by those who prefill when it comes back.
func TestLocalIsNoFate(t *testing.T) {
	g := newRig(t, Config{})
	m := schemas.Heartbeat{Executor: "m", Node: "n", Role: schemas.RoleMixed, Slots: 4, PrefillTPS: 1000}
	g.beat(m)
	g.ready("u", 3000, 0, "s")
	if len(g.jobs) != 1 || !g.jobs[0].Local {
		t.Fatalf("%d jobs", len(g.jobs))
	}
	g.beat(schemas.Heartbeat{Executor: "d", Node: "n", Role: schemas.RoleDecode, Slots: 4, PrefillTPS: 1000})
	m.Role = schemas.RolePrefill
	g.returned("role changes", 0)
	g.beat(m)
	if j := g.jobs[len(g.jobs)-1]; j.Stage != schemas.StagePrefill || g.on[j.Ready.Job] != "m" {
		t.Errorf("%s on %s, local %v", j.Stage, g.on[j.Ready.Job], j.Local)
	}
}
