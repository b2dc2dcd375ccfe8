package route

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestPriority: of turns that wait, one with a head start goes before those that came up to
// so many seconds earlier, and the others in order of arrival.
func TestPriority(t *testing.T) {
	g := newRig(t, Config{})
	d := schemas.Heartbeat{Executor: "d", Role: schemas.RoleDecode, Slots: 1}
	g.beat(d)
	for i, p := range []int{0, 0, 0, 2, 0, -9} {
		r := turnReady(fmt.Sprintf("u%d", i), 100, 0)
		r.Session, r.Priority, r.AdmittedNS = r.Turn, p, int64(g.now)
		g.seq++
		g.step(&schemas.Msg{Kind: schemas.KindReady, Seq: g.seq, Ready: r})
		g.now += second
		if i > 0 {
			d.Held = []schemas.Held{{Job: g.jobs[0].Ready.Job, Attempt: g.jobs[0].Attempt, Stage: schemas.StageDecode}}
		}
		g.beat(d)
	}
	var order []string
	for i := 0; i < len(g.jobs); i++ {
		order = append(order, g.jobs[i].Ready.Turn)
		g.step(&schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{
			Header: schemas.H(), Job: g.jobs[i].Ready.Job, Attempt: 1, Stage: schemas.StageDecode, Executor: "d", Outcome: schemas.OutcomeDecoded,
		}})
	}
	if got, want := strings.Join(order, " "), "u0 u1 u3 u2 u4 u5"; got != want {
		t.Errorf("placed in order %s, want %s", got, want)
	}
}

// TestDeadlineTooSoon: a turn that cannot be computed before its deadline is refused at
// once with the figures, one that can is not.
func TestDeadlineTooSoon(t *testing.T) {
	for _, c := range []struct {
		name     string
		waiting  int // tokens that wait before it
		tokens   int
		deadline float64 // seconds from now
		refused  bool
	}{
		{"its own prompt takes too long", 0, 20_000, 5, true},
		{"what waits takes too long", 20_000, 2000, 5, true},
		{"in time", 0, 20_000, 30, false},
		{"in time behind others", 20_000, 2000, 30, false},
		{"no deadline", 40_000, 20_000, 0, false},
	} {
		g := newRig(t, Config{})
		g.beat(schemas.Heartbeat{Executor: "p", Role: schemas.RolePrefill, Slots: 4, PrefillTPS: 1000})
		g.beat(schemas.Heartbeat{Executor: "d", Role: schemas.RoleDecode, Slots: 64})
		for i := range c.waiting / 2000 {
			g.ready(fmt.Sprintf("w%d", i), 2000, 0, fmt.Sprintf("w%d", i))
		}
		r := turnReady("u", c.tokens, 0)
		r.Session, r.AdmittedNS = "u", int64(g.now)
		if c.deadline > 0 {
			r.DeadlineNS = int64(g.now) + int64(c.deadline*1e9)
		}
		g.seq++
		var failure *schemas.Failure
		for _, o := range g.r.Step(g.now, &schemas.Msg{Kind: schemas.KindReady, Seq: g.seq, Ready: r}, nil) {
			if o.Kind == schemas.KindResult {
				failure = o.Result.Failure
			}
		}
		if (failure != nil) != c.refused || failure != nil && (failure.Code != schemas.CodeDeadline || !strings.Contains(failure.Message, "deadline is in 5.0 s")) {
			t.Errorf("%s: %+v", c.name, failure)
		}
	}
}

// TestHeld: turns of a session that is not admitted wait, whatever room executors have,
// and go on when one ends; the load tells of both. A session that is known to have a
// context is not stopped by a router that has just started.
func TestHeld(t *testing.T) {
	g := newRig(t, Config{Admit: true})
	d := schemas.Heartbeat{Executor: "d", Node: "n", Role: schemas.RoleDecode, Slots: 64, TierBlocks: 250, PrefillTPS: 50_000}
	g.beat(d)
	g.ready("a", 8000, 0, "a")
	b := g.ready("b", 8000, 0, "b")
	g.ready("old", 8000, 6400, "old")
	if g.on[b.Job] != "" || len(g.jobs) != 2 {
		t.Fatalf("%d jobs, b on %q", len(g.jobs), g.on[b.Job])
	}
	g.now += second
	var load *schemas.Load
	for _, o := range g.r.Step(g.now, &schemas.Msg{Kind: schemas.KindTick}, nil) {
		if o.Kind == schemas.KindLoad {
			load = o.Load
		}
	}
	if p := load.Pools[0]; p.Held != 1 || p.Sessions != 2 || p.SessionTokens != 16_000 || p.OldestNS != int64(second) {
		t.Fatalf("load %+v", p)
	}
	for _, s := range []string{"a", "old"} {
		g.step(&schemas.Msg{Kind: schemas.KindResult, Result: &schemas.Result{Header: schemas.H(), Tenant: "t", Session: "s", Turn: s, Status: schemas.StatusOK, DecodeOn: "d"}})
		g.step(&schemas.Msg{Kind: schemas.KindBranch, Branch: &schemas.BranchChange{Header: schemas.H(), Tenant: "t", Session: s, Branch: "main", State: schemas.BranchEnded}})
	}
	g.now += second
	d.Seq++
	g.beat(d)
	if g.on[b.Job] != "d" {
		t.Errorf("b waits although the others have ended")
	}
}
