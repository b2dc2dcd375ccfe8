package sim

import (
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// restarting is an executor that cannot change its role while it runs, as in systems
// whose planner replaces processes. A new role is read as standby, so what it has is
// given back and goes on elsewhere, with its KV where the system has a way for it: kinder
// than such systems, which abort what does not end within seconds. Then the process ends
// with its memory, and comes back after System.Restart in its new role.
type restarting struct {
	schemas.Actor
	w    *world
	e    *exec
	role schemas.Role
	ends bool
}

// Step hides role changes from the executor.
func (r *restarting) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	if in.Kind == schemas.KindAssignment {
		a := in.Assignment
		if r.role != "" && a.Role != r.role {
			r.ends = true
			b := *a
			b.Role = schemas.RoleStandby
			m := *in
			m.Assignment = &b
			in = &m
		}
		r.role = a.Role
	}
	n := len(out)
	out = r.Actor.Step(now, in, out)
	for i := n; i < len(out); i++ {
		h := out[i].Heartbeat
		if r.ends && out[i].Kind == schemas.KindHeartbeat && h.Role == schemas.RoleStandby && !r.e.away {
			r.w.restart(now, r.e)
		}
	}
	return out
}

// restart ends a process and starts it again later. Its supervisor tells the router.
func (w *world) restart(now schemas.Time, e *exec) {
	e.away = true
	w.restarts++
	boot := w.boot(e)
	w.sim.Timer(now+1e6, func() { // what it has just sent is on its way
		w.sim.Crash(e.id)
		w.mem.lost(w.sim.Now(), e.n)
		e.role = schemas.RoleStandby
		err := w.sim.PublishCoreMsg(&schemas.Msg{
			Kind: schemas.KindHeartbeat, Subject: schemas.HBSubject(cell, e.id),
			Heartbeat: &schemas.Heartbeat{Header: schemas.H(), Executor: e.id, Boot: boot, Dead: true, Outside: true, Cause: "replaced"},
		})
		if err != nil {
			w.check.broken(11, err.Error())
		}
	})
	w.sim.Timer(now+schemas.Time(w.sys.Restart), func() {
		e.away, e.beat, e.idle = false, 0, 0
		if err := w.startExec(e); err != nil {
			w.check.broken(1, err.Error())
		}
	})
}

func (w *world) boot(e *exec) string { return fmt.Sprintf("b%d", e.boots) }
