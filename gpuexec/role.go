package gpuexec

import (
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// roleState follows one executor through its assignments.
//
//	         newer assignment               nothing of the old role is left
//	current ------------------> returning -> handing ----------------------> verifying -> current'
//	   ^                            |  unstarted jobs: returned                  |
//	   |                            |  prefill: to the next block boundary,      |
//	   |                            |           sealed, returned                 |
//	   |                            |  decode: finished if that is sooner, else  |
//	   |                            |          sealed to its last token,         |
//	   |                            |          checkpointed, returned            |
//	   +-- a stage does not end, or the engine is not as it should be -----------+
//
// Before the new role is in force the engine is asked whether it holds what the
// executor believes. If it does not, or a stage cannot end, the old role is in force
// again, with the jobs that are still here, and the report says why. Stages are
// timed, see flip.go.
//
// A newer assignment wins at any time: jobs that it allows and that have not left
// yet go on. One that changes neither role nor classes needs no change of anything:
// its epoch is taken as it comes.
//
// Jobs that the new assignment allows too are kept. The model stays loaded and
// KV stays where it is.
type roleState struct {
	current    schemas.Role // in force
	assignment schemas.Assignment
	epoch      uint64 // of the assignment in force
	seen       uint64 // newest epoch that was heard of

	pending  *schemas.Assignment
	pendEp   uint64
	draining bool
	clear    bool // nothing of the old role is left
	verified bool // and the engine agrees
	problem  string

	change flipState     // the change under way
	flips  uint64        // changes that ended
	last   *schemas.Flip // the newest of them
	stepAt schemas.Time  // of the last step
	hold   schemas.Time  // no role is changed before: newer assignments may be on their way
}

// reasonRole is what a job that a change of role sends away is returned with.
const reasonRole = "role changes"

func (r *roleState) report() schemas.Role {
	if r.draining {
		return schemas.RoleDraining
	}
	return r.current
}

// same reports whether an assignment allows what the one in force allows.
func (r *roleState) same(a *schemas.Assignment) bool {
	return r.epoch > 0 && a.Role == r.assignment.Role && slices.Equal(a.Classes, r.assignment.Classes)
}

// assign takes a newer assignment. Its epoch is the stream sequence, so an
// executor that slept through several never goes back to an older one.
func (e *Executor) assign(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	r := &e.role
	if in.Seq <= r.seen {
		return out
	}
	r.seen = in.Seq
	e.stoodStill(now)
	if !r.draining && r.same(in.Assignment) {
		r.assignment, r.epoch, r.problem = *in.Assignment, in.Seq, ""
		out = e.heartbeat(now, out)
		return e.report(now, out)
	}
	r.pending, r.pendEp, r.clear, r.verified = in.Assignment, in.Seq, false, false
	if !r.draining {
		r.draining = true
		e.beginFlip(now)
	}
	e.keepAllowed()
	if now >= r.hold {
		out = e.drain(out)
	}
	// The router learns at once that nothing more is taken.
	return e.heartbeat(now, out)
}

// allowed reports whether the pending assignment lets the job go on.
func (e *Executor) allowed(j *job) bool {
	return e.role.pending.Allows(j.Stage, j.Ready.Prompt.N-j.Ready.Prompt.TailFrom)
}

// keepAllowed lets jobs go on that were on their way out when a newer assignment came
// that allows them.
func (e *Executor) keepAllowed() {
	for _, j := range e.order {
		if !e.allowed(j) {
			continue
		}
		delete(e.role.change.ends, j)
		if j.leavesForRole() {
			j.stay()
		}
	}
}

func (j *job) leavesForRole() bool {
	return j.phase == phaseSealing && j.leave == leaveReturned && j.reason == reasonRole
}

// stay takes back that a running job was to be handed over.
func (j *job) stay() {
	j.leave, j.reason = leaveNot, ""
	switch {
	case j.missing > 0:
		j.phase = phasePrefilling
	case j.Stage == schemas.StagePrefill:
		j.leave = leavePrefilled // it is complete: seal it
	default:
		j.phase = phaseDecoding
	}
}

// drain sends away what the pending assignment does not allow.
func (e *Executor) drain(out []schemas.Msg) []schemas.Msg {
	for _, j := range append([]*job(nil), e.order...) {
		if e.allowed(j) {
			continue
		}
		switch j.phase {
		case phaseQueued, phaseAsking, phaseReady:
			out = e.done(j, schemas.OutcomeReturned, "", reasonRole, out)
			out = e.forget(j, out)
		case phasePrefilling:
			j.phase, j.leave, j.reason = phaseSealing, leaveReturned, reasonRole
		case phaseDecoding:
			if !e.finishes(j) && !e.holdsBack() {
				j.phase, j.leave, j.reason = phaseSealing, leaveReturned, reasonRole
			}
		case phaseOpening, phaseSealing, phasePublishing:
			// Ends by itself; advanceRole looks again.
		}
	}
	return out
}

// advanceRole moves a change of role on: when nothing of the old role is left the
// engine is verified, and then the new epoch is reported.
func (e *Executor) advanceRole(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	r := &e.role
	e.stoodStill(now)
	if !r.draining || now < r.hold {
		return out
	}
	out = e.drain(out)
	var stuck bool
	if out, stuck = e.overdue(now, out); stuck {
		return e.rollBack(now, out)
	}
	if r.clear = e.nothingLeft(); !r.clear {
		e.stage(now)
		return out
	}
	e.stage(now)
	if !r.verified {
		return out // schedule asks the engine
	}
	r.assignment, r.epoch = *r.pending, r.pendEp
	r.current, r.pending, r.draining, r.problem = r.assignment.Role, nil, false, ""
	e.endFlip(now, &r.assignment, r.epoch, "")
	out = e.heartbeat(now, out)
	return e.report(now, out)
}

// nothingLeft: all jobs in hand are allowed under the pending assignment. An answer
// that waits for a full RESULT stream needs no engine.
func (e *Executor) nothingLeft() bool {
	for _, j := range e.order {
		if !e.allowed(j) && j.phase != phasePublishing {
			return false
		}
	}
	return true
}

// verify asks the engine whether it holds exactly the open sequences.
func (e *Executor) verify(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	op := &schemas.VerifyOp{From: e.role.current, To: e.role.pending.Role}
	for i, j := range e.slots {
		if j != nil {
			op.Open = append(op.Open, int32(i))
		}
	}
	e.role.change.asked = e.role.pendEp
	out = e.start(now, nil, nil, &schemas.Op{Verify: op}, out)
	e.op.verify = true
	return out
}

// verifiedRole takes the engine's answer. A role that cannot be trusted is not taken:
// the old one stays in force.
func (e *Executor) verifiedRole(now schemas.Time, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	r := &e.role
	if !r.draining || r.change.asked != r.pendEp {
		return out // the change was given up, or a newer assignment came: it asks again
	}
	problem := d.Err
	if problem == "" && d.Verify != nil {
		problem = d.Verify.Problem
	}
	if problem == "" {
		r.verified = true
		return out
	}
	r.change.problem = "the engine is not as it should be: " + problem
	return e.rollBack(now, out)
}

// rollBack gives a change up: the old role is in force again, and what has not left
// goes on.
func (e *Executor) rollBack(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	r := &e.role
	for _, j := range e.order {
		if j.leavesForRole() {
			j.stay()
		}
	}
	r.problem = r.change.problem + "; the old role stays"
	e.endFlip(now, r.pending, r.pendEp, r.change.problem)
	r.pending, r.draining, r.clear, r.verified = nil, false, false, false
	out = e.heartbeat(now, out)
	return e.report(now, out)
}
