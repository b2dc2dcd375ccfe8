package route

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// apart is two prefill workers of 10,000 tokens a second, with memories of their own that
// give nothing to others. 100 contexts of 50,000 tokens are on each.
func apart(t *testing.T) *rig {
	g := newRig(t, Config{Handover: true})
	for i := range 2 {
		p, n := fmt.Sprintf("p%d", i), fmt.Sprintf("n%d", i)
		g.beat(schemas.Heartbeat{Executor: p, Node: n, Role: schemas.RolePrefill, Slots: 64, PrefillTPS: 10_000})
		var all []string
		for s := range 100 {
			all = append(all, fmt.Sprintf("%s-%d/781", n, s))
		}
		g.step(&schemas.Msg{Kind: schemas.KindKV, KV: &schemas.KVNotice{
			Header: schemas.H(), Node: n, Epoch: 1, Seq: 1, Medium: schemas.MediumHost, Stored: chains(strings.Join(all, ",")),
		}})
	}
	g.beat(schemas.Heartbeat{Executor: "d", Node: "n2", Role: schemas.RoleDecode, Slots: 256})
	return g
}

// work ends the oldest prefills until none is left, and counts those that were computed
// where the context was not.
func (g *rig) work() (moved, all int) {
	for i := 0; i < len(g.jobs); i++ {
		j := g.jobs[i]
		if j.Stage != schemas.StagePrefill {
			continue
		}
		all++
		on := g.on[j.Ready.Job]
		if on[1] != j.Ready.Session[1] {
			moved++
		}
		g.step(&schemas.Msg{Kind: schemas.KindDone, Done: &schemas.Done{
			Header: schemas.H(), Job: j.Ready.Job, Attempt: j.Attempt, Stage: j.Stage, Executor: on, Outcome: schemas.OutcomePrefilled, PassedTo: j.DecodeOn, Cached: 49_984,
		}})
	}
	return moved, all
}

// TestStay: a session's turn waits for the worker that has its context, also while another
// one has room, as long as that is over sooner than computing all of it there; then not.
func TestStay(t *testing.T) {
	for _, c := range []struct {
		turns     int
		few, many int // that may be computed elsewhere
	}{{20, 0, 0}, {100, 10, 50}} {
		g := apart(t)
		for i := range c.turns {
			r := turnReady(fmt.Sprintf("u%d", i), 52_000, 49_984)
			r.Session = fmt.Sprintf("n0-%d", i)
			nameBlocks(r, fmt.Sprintf("n0-%d:781+new%d", i, i))
			g.seq++
			r.AdmittedNS = int64(g.now)
			g.step(&schemas.Msg{Kind: schemas.KindReady, Seq: g.seq, Ready: r})
		}
		if p := g.r.pools[0]; p.pins == 0 || c.turns == 20 && p.rooms[needM] == 0 {
			t.Errorf("%d turns: %d wait for one worker, %v have room", c.turns, p.pins, p.rooms)
		}
		moved, all := g.work()
		t.Logf("%d of %d turns were computed elsewhere", moved, all)
		if all != c.turns || moved < c.few || moved > c.many || g.r.waiting > 0 {
			t.Errorf("of %d turns %d were computed, %d elsewhere, %d wait", c.turns, all, moved, g.r.waiting)
		}
	}
}

// TestStayEnds: turns that wait for a worker go elsewhere when it ends, changes its role, or
// takes no more for long.
func TestStayEnds(t *testing.T) {
	for _, how := range []string{"dies", "decodes", "is slow"} {
		g := apart(t)
		for i := range 10 {
			r := turnReady(fmt.Sprintf("u%d", i), 52_000, 49_984)
			r.Session = fmt.Sprintf("n0-%d", i)
			nameBlocks(r, fmt.Sprintf("n0-%d:781+new%d", i, i))
			g.seq++
			r.AdmittedNS = int64(g.now)
			g.step(&schemas.Msg{Kind: schemas.KindReady, Seq: g.seq, Ready: r})
		}
		if g.r.pools[0].pins == 0 {
			t.Fatal("none waits for one worker")
		}
		h := schemas.Heartbeat{Executor: "p0", Node: "n0", Role: schemas.RolePrefill, Slots: 64, PrefillTPS: 10_000}
		switch how {
		case "dies":
			g.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{Header: schemas.H(), Executor: "p0", Boot: "b", Dead: true, Outside: true}})
		case "decodes":
			h.Role = schemas.RoleDecode
			g.beat(h)
		case "is slow":
			h.PrefillTPS = 100
			for _, j := range g.jobs {
				if g.on[j.Ready.Job] == "p0" {
					h.Held = append(h.Held, schemas.Held{Job: j.Ready.Job, Attempt: 1, Stage: j.Stage})
				}
			}
			g.beat(h)
			for range 15 {
				g.now += second / 10
				g.step(&schemas.Msg{Kind: schemas.KindTick})
			}
		}
		if g.placed["prefill p1"] == 0 {
			t.Errorf("%s: %v, %d wait for one worker", how, g.placed, g.r.pools[0].pins)
		}
	}
}

// come sends one turn each of sessions whose contexts are on node n, by number.
func (g *rig) come(n string, from, to int) {
	for i := from; i < to; i++ {
		r := turnReady(fmt.Sprintf("u%d", g.seq), 52_000, 49_984)
		r.Session = fmt.Sprintf("%s-%d", n, i)
		nameBlocks(r, fmt.Sprintf("%s-%d:781+new%s%d", n, i, n, i))
		g.seq++
		r.AdmittedNS = int64(g.now)
		g.step(&schemas.Msg{Kind: schemas.KindReady, Seq: g.seq, Ready: r})
	}
}

// TestStayBusy: where both workers have long queues, one that is longer makes nobody flee to
// the other one, where each context would be computed again.
func TestStayBusy(t *testing.T) {
	g := apart(t)
	for i := range 80 {
		g.come("n0", i, i+1)
		if i < 40 {
			g.come("n1", i, i+1)
		}
	}
	if p := g.r.pools[0]; p.rooms[needM] > 0 || g.r.waiting < 100 {
		t.Fatalf("%d turns wait, %v have room", g.r.waiting, p.rooms)
	}
	moved, all := g.work()
	if all != 120 || g.r.waiting > 0 || moved > 0 {
		t.Errorf("%d of 120 turns were computed, %d of them elsewhere, %d wait", all, moved, g.r.waiting)
	}
}

// TestIdleTakes: a worker with nothing to do takes what waits for another one in the end,
// although waiting would be over sooner for each of those turns.
func TestIdleTakes(t *testing.T) {
	g := apart(t)
	g.come("n0", 0, 14)
	p0, p1 := g.r.execs["p0"], g.r.execs["p1"]
	if len(p0.wait.ts) == 0 || len(p1.prefills) > 0 {
		t.Fatalf("%d wait for p0, %d are at p1", len(p0.wait.ts), len(p1.prefills))
	}
	for at := g.now + second; g.now < at; {
		g.now += second / 10
		g.beat(schemas.Heartbeat{Executor: "p0", Node: "n0", Role: schemas.RolePrefill, Slots: 64, PrefillTPS: 10_000, Held: g.heldBy("p0")})
		g.step(&schemas.Msg{Kind: schemas.KindTick})
	}
	if len(p1.prefills) != 1 {
		t.Errorf("%d turns are at the idle worker, %d wait for the other one", len(p1.prefills), len(p0.wait.ts))
	}
}

func (g *rig) heldBy(id string) (held []schemas.Held) {
	for _, j := range g.jobs {
		if g.on[j.Ready.Job] == id {
			held = append(held, schemas.Held{Job: j.Ready.Job, Attempt: j.Attempt, Stage: j.Stage})
		}
	}
	return held
}
