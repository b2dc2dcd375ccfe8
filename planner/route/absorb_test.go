package route

import (
	"fmt"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestAbsorb: a burst in front of one prefill worker. Two workers decode, one of them
// busy; both may compute prompts of class M.
func TestAbsorb(t *testing.T) {
	const tps = 50_000
	for _, c := range []struct {
		name   string
		absorb schemas.SizeClass
		prompt int
		turns  int
		busy   int // decodes on e0
		want   bool
	}{
		{"a prefill worker is free", schemas.SizeM, 3000, 1, 0, false},
		{"a burst", schemas.SizeM, 3000, 100, 20, true},
		{"a burst of prompts above the class", schemas.SizeM, 9000, 100, 0, false},
		{"the class allows them", schemas.SizeL, 9000, 100, 0, true},
		{"nothing is allowed", "", 3000, 100, 0, false},
	} {
		g := newRig(t, Config{})
		g.beat(schemas.Heartbeat{Executor: "p", Node: "n", Role: schemas.RolePrefill, Slots: 64, PrefillTPS: tps})
		for i := range 2 {
			g.beat(schemas.Heartbeat{Executor: fmt.Sprintf("e%d", i), Node: "n", Role: schemas.RoleDecode, Slots: 64, PrefillTPS: tps, Absorb: c.absorb})
		}
		for i := range c.busy {
			j := g.ready(fmt.Sprintf("b%d", i), 64, 0, "")
			if g.on[j.Job] == "e1" { // all of them on e0
				g.step(&schemas.Msg{Kind: schemas.KindResult, Result: &schemas.Result{Header: schemas.H(), Tenant: "t", Session: "s", Turn: j.Turn, Status: schemas.StatusOK}})
			}
		}
		before := g.placed["decode e0"] + g.placed["decode e1"]
		free := g.r.pools[0].rooms[needM]
		for i := range c.turns {
			g.ready(fmt.Sprintf("u%d", i), c.prompt, 0, fmt.Sprintf("s%d", i))
		}
		absorbed := g.placed["decode e0"] + g.placed["decode e1"] - before
		if got := g.r.pools[0].totals.absorbed; (absorbed > 0) != c.want || int(got) != absorbed || free == 0 {
			t.Errorf("%s: %d of %d turns are absorbed, the load says %d", c.name, absorbed, c.turns, got)
		}
		for _, j := range g.jobs {
			if j.Ready.Prompt.N == c.prompt && j.Stage == schemas.StageDecode && j.Local {
				t.Errorf("%s: the decode worker may compute more than its assignment allows", c.name)
			}
		}
		if c.want && (g.placed["decode e1"] == 0 || g.r.waiting == 0) {
			t.Errorf("%s: %v, %d wait", c.name, g.placed, g.r.waiting)
		}
		// The first turns wait less than an absorbed one would cost; one decode worker is
		// not filled up while its decodes stand still for each.
		queue := float64(g.r.pools[0].waitTokens()+g.r.execs["p"].tokens) / tps
		for _, x := range []string{"e0", "e1"} {
			if cost := float64(c.prompt) / tps * float64(g.r.execs[x].decoding); c.want && cost > queue+1 {
				t.Errorf("%s: %s computes for %.1f s of its decodes, the queue is %.1f s long", c.name, x, cost, queue)
			}
		}
	}
}

// TestAbsorbEnds: while prefill workers have room, nothing is absorbed; when the last one
// changes its role, what waits is not stuck, and when it is back it prefills again.
func TestAbsorbEnds(t *testing.T) {
	g := newRig(t, Config{})
	p := schemas.Heartbeat{Executor: "p", Node: "n", Role: schemas.RolePrefill, Slots: 4, PrefillTPS: 1000}
	d := schemas.Heartbeat{Executor: "d", Node: "n", Role: schemas.RoleDecode, Slots: 64, PrefillTPS: 1000}
	g.beat(p)
	g.beat(d)
	for i := range 4 {
		g.ready(fmt.Sprintf("u%d", i), 3000, 0, fmt.Sprintf("s%d", i))
	}
	if g.r.waiting != 3 {
		t.Fatalf("%d wait behind one of 3,000 tokens", g.r.waiting)
	}
	p.Role = schemas.RoleDecode
	p.Held = []schemas.Held{{Job: g.jobs[0].Ready.Job, Attempt: 1, Stage: schemas.StagePrefill}}
	g.beat(p)
	if g.r.waiting != 0 {
		t.Fatalf("%d wait although nobody prefills", g.r.waiting)
	}
	p.Role = schemas.RolePrefill
	g.beat(p)
	was := g.placed["prefill p"]
	g.step(&schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{Header: schemas.H(), Job: g.jobs[0].Ready.Job, Attempt: 1, Stage: schemas.StagePrefill, Executor: "p", Outcome: schemas.OutcomePrefilled}})
	g.ready("later", 3000, 0, "later")
	if g.placed["prefill p"] != was+1 {
		t.Errorf("the worker that prefills again gets nothing: %v", g.placed)
	}
}
