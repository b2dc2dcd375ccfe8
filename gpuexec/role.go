package gpuexec

import "github.com/weir-dev/weir/schemas"

// roleState follows one executor through its assignments.
//
//	         newer assignment                 nothing of the old role is left
//	current ------------------> draining ------------------------------------> current'
//	                              |  unstarted jobs: returned
//	                              |  prefill: to the next block boundary, sealed, returned
//	                              |  decode: finished if that is sooner, else sealed,
//	                              |          checkpointed, returned
//	                              +- deadline: what is left is returned as it is
//
// Jobs that the new assignment allows too are kept. The model stays loaded and
// KV stays where it is.
type roleState struct {
	current    schemas.Role // in force
	assignment schemas.Assignment
	epoch      uint64 // of the assignment in force

	pending  *schemas.Assignment
	pendEp   uint64
	draining bool
	since    schemas.Time
}

// drainNS bounds draining: after it, jobs are returned without being sealed.
const drainNS = 10_000_000_000

func (r *roleState) report() schemas.Role {
	if r.draining {
		return schemas.RoleDraining
	}
	return r.current
}

// assign takes a newer assignment. Its epoch is the stream sequence, so an
// executor that slept through several never goes back to an older one.
func (e *Executor) assign(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	r := &e.role
	if in.Seq <= r.epoch || r.pending != nil && in.Seq <= r.pendEp {
		return out
	}
	r.pending, r.pendEp = in.Assignment, in.Seq
	if !r.draining {
		r.draining, r.since = true, now
	}
	// The router learns at once that nothing more is taken.
	return e.heartbeat(now, e.drain(out))
}

// allowed reports whether the pending assignment lets the job go on.
func (e *Executor) allowed(j *job) bool {
	return e.role.pending.Allows(j.Stage, j.Ready.Prompt.N-j.Ready.Prompt.TailFrom)
}

// drain sends away what the pending assignment does not allow.
func (e *Executor) drain(out []schemas.Msg) []schemas.Msg {
	for _, j := range append([]*job(nil), e.order...) {
		if e.allowed(j) {
			continue
		}
		switch j.phase {
		case phaseQueued, phaseAsking, phaseReady:
			out = e.done(j, schemas.OutcomeReturned, "", "role changes", out)
			out = e.forget(j, out)
		case phasePrefilling:
			j.phase, j.leave, j.reason = phaseSealing, leaveReturned, "role changes"
		case phaseDecoding:
			if e.remainingNS(j) > e.cfg.FinishNS {
				j.phase, j.leave, j.reason = phaseSealing, leaveReturned, "role changes"
			}
		case phaseOpening, phaseSealing, phasePublishing:
			// Ends by itself; advanceRole looks again.
		}
	}
	return out
}

// remainingNS estimates how long a decode still runs, from its limit and the
// measured speed.
func (e *Executor) remainingNS(j *job) int64 {
	if e.stats.decodeTPS <= 0 {
		return 1 << 62
	}
	return int64(float64(j.Ready.MaxNew-len(j.tokens)) / e.stats.decodeTPS * 1e9)
}

// advanceRole ends draining when nothing of the old role is left, verifies and
// reports the new epoch.
func (e *Executor) advanceRole(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	r := &e.role
	if !r.draining {
		return out
	}
	out = e.drain(out)
	late := int64(now-r.since) > drainNS
	for _, j := range append([]*job(nil), e.order...) {
		// An answer that waits for a full RESULT stream needs no engine.
		if e.allowed(j) || j.phase == phasePublishing {
			continue
		}
		if !late || e.busyWith(j) {
			return out
		}
		out = e.done(j, schemas.OutcomeReturned, "", "role change ran into its deadline", out)
		out = e.forget(j, out)
	}
	r.assignment, r.epoch = *r.pending, r.pendEp
	r.current, r.pending, r.draining = r.assignment.Role, nil, false
	e.stats.flipNS = int64(now - r.since)
	out = e.heartbeat(now, out)
	return e.report(now, out)
}
