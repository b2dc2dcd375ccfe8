package route

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// TestRandomWalk: whatever happens in whatever order, no turn is lost (invariant
// 1), none is placed against a role (invariant 6), all books stay bounded and
// balanced (invariant 8).
func TestRandomWalk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, fromRapid{rt}, rapid.IntRange(1, 5).Draw(rt, "executors"), true)
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			x := w.execs[w.pick.n("executor", len(w.execs))]
			switch w.pick.n("action", 16) {
			case 0, 1:
				w.publishTurn(fmt.Sprintf("u%d", len(w.turns)), 1+w.pick.n("prompt", 1500))
			case 2:
				if len(w.turns) > 0 {
					w.publishTurn(w.turns[w.pick.n("again", len(w.turns))].ready.Turn, 1)
				}
			case 3:
				if len(w.turns) > 0 {
					w.seq++
					m := w.turns[w.pick.n("cancel", len(w.turns))]
					c := *m.ready
					c.Cancel = true
					w.step(&schemas.Msg{Kind: schemas.KindReady, Seq: w.seq, Ready: &c})
				}
			case 4, 5, 6:
				x.up = true
				w.heartbeat(x)
			case 7, 8, 9:
				w.work(x)
			case 10, 11, 12:
				if len(w.inbox) > 0 {
					w.deliver(w.pick.n("message", len(w.inbox)))
				}
			case 13:
				w.pass(schemas.Time(w.pick.n("ms", 4000)) * second / 1000)
			case 14:
				x.role = []schemas.Role{schemas.RoleDecode, schemas.RolePrefill, schemas.RoleMixed, schemas.RoleDraining}[w.pick.n("role", 4)]
			case 15:
				switch w.pick.n("fault", 5) {
				case 0:
					w.die(x, w.pick.n("outside", 2) == 0)
				case 1:
					x.up = false // stopped, or cut off
				case 2:
					w.step(&schemas.Msg{Kind: schemas.KindBus, Err: "away"})
					w.pass(second)
					w.step(&schemas.Msg{Kind: schemas.KindBus})
				case 3:
					w.restart()
				case 4: // a new life without word from a supervisor
					x.jobs, x.boot, x.up = nil, x.boot+1, true
				}
			}
		}
		// Somebody must be there for both phases (invariant 7 is the planner's).
		w.execs[0].role = schemas.RoleMixed
		for _, x := range w.execs[1:] {
			if x.role == schemas.RoleDraining {
				x.role = schemas.RoleDecode
			}
		}
		w.finish()
	})
}

// TestPoison: one turn that aborts its engine beside 100 good ones, on four
// executors, in many interleavings. At most two executors die, there is one dead
// letter, and all others get their answers.
func TestPoison(t *testing.T) {
	for seed := range uint64(200) {
		w := newWorld(t, fromSeed{rand.New(rand.NewPCG(seed, 1))}, 4, false)
		for i, x := range w.execs {
			x.slots = 8
			x.role = []schemas.Role{schemas.RoleMixed, schemas.RoleDecode}[i%2]
			w.heartbeat(x)
		}
		bad := w.pick.n("bad", 101)
		w.poison = fmt.Sprintf("u%d", bad)
		next := 0
		for next < 101 || w.pick.n("more", 20) > 0 {
			x := w.execs[w.pick.n("executor", 4)]
			switch w.pick.n("action", 6) {
			case 0, 1:
				if next < 101 {
					w.publishTurn(fmt.Sprintf("u%d", next), 1+w.pick.n("prompt", 1500))
					next++
				}
			case 2:
				x.up = true
				w.heartbeat(x)
			case 3, 4:
				w.work(x)
			case 5:
				if len(w.inbox) > 0 {
					w.deliver(0)
				}
				w.pass(second / 50)
			}
		}
		w.finish()
		ok := 0
		for _, m := range w.turns {
			if m.result.Status == schemas.StatusOK {
				ok++
			} else if m.ready.Turn != w.poison || m.result.Failure.Code != schemas.CodePoison {
				t.Fatalf("seed %d: turn %s ended with %+v", seed, m.ready.Turn, m.result.Failure)
			}
		}
		if ok != 100 || w.deaths != 2 || w.dead != 1 {
			t.Fatalf("seed %d: %d results, %d deaths, %d dead letters; want 100, 2, 1", seed, ok, w.deaths, w.dead)
		}
	}
}
