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
// Before the new role is in force the engine is asked whether it holds what the
// executor believes. If it does not, the old role stays in force and the report
// says why.
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
	clear    bool // nothing of the old role is left
	verified bool // and the engine agrees
	problem  string
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
	r.pending, r.pendEp, r.clear, r.verified = in.Assignment, in.Seq, false, false
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

// advanceRole ends draining when nothing of the old role is left and the engine
// was verified, and reports the new epoch.
func (e *Executor) advanceRole(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	r := &e.role
	if !r.draining {
		return out
	}
	r.clear = false
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
	if r.clear = true; !r.verified {
		return out // schedule asks the engine
	}
	r.assignment, r.epoch = *r.pending, r.pendEp
	r.current, r.pending, r.draining, r.problem = r.assignment.Role, nil, false, ""
	e.stats.flipNS = int64(now - r.since)
	out = e.heartbeat(now, out)
	return e.report(now, out)
}

// verify asks the engine whether it holds exactly the open sequences.
func (e *Executor) verify(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	op := &schemas.VerifyOp{}
	for i, j := range e.slots {
		if j != nil {
			op.Open = append(op.Open, int32(i))
		}
	}
	out = e.start(now, nil, nil, &schemas.Op{Verify: op}, out)
	e.op.verify = true
	return out
}

// verifiedRole takes the engine's answer. A role that cannot be trusted is not taken:
// the old one stays in force.
func (e *Executor) verifiedRole(now schemas.Time, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	r := &e.role
	if !r.draining {
		return out
	}
	problem := d.Err
	if problem == "" && d.Verify != nil {
		problem = d.Verify.Problem
	}
	if problem == "" {
		r.verified = true
		return out
	}
	r.pending, r.draining, r.clear = nil, false, false
	r.problem = "the engine is not as it should be, the old role stays: " + problem
	out = e.heartbeat(now, out)
	return e.report(now, out)
}
