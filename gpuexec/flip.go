package gpuexec

import (
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// Deadlines of a change of role, in nanoseconds. They are far above what a stage
// takes, so that only what hangs meets them.
const (
	// drainNS bounds returning and handing over together: after it jobs are returned
	// without being sealed. 10 s.
	drainNS = 10_000_000_000
	// stuckNS: an operation that does not come back keeps its job from leaving. Then
	// the change is given up. 20 s.
	stuckNS = 20_000_000_000
	// verifyNS bounds the engine's answer. 5 s.
	verifyNS = 5_000_000_000
	// settleNS: an executor that stood still reads for so long what came meanwhile
	// before it changes its role: an assignment that waited in a buffer may have been
	// replaced, and the newer one lies behind it. 200 ms.
	settleNS = 200_000_000
	// inTurnNS: for so long decodes leave one after the other, with a decode operation of
	// the rest in between; those that are left then leave together. 250 ms.
	inTurnNS = 250_000_000
)

// The stages of a change, in order.
type flipStage uint8

const (
	flipReturning flipStage = iota // jobs that have not begun leave
	flipHanding                    // running ones do
	flipVerifying
)

// flipState is one change of role under way. A newer assignment that comes meanwhile
// goes on with it.
type flipState struct {
	flip    schemas.Flip
	stage   flipStage
	at      schemas.Time // when the stage began
	since   schemas.Time // when the change began
	asked   uint64       // epoch for which the engine was last verified
	problem string
	steps   uint64 // decode steps when a decode left last
	// ends are decodes that are to end here rather than to leave; at most Slots.
	ends map[*job]bool
}

func (e *Executor) beginFlip(now schemas.Time) {
	r := &e.role
	r.change = flipState{at: now, since: now, ends: map[*job]bool{}, flip: schemas.Flip{From: r.current, AtNS: int64(now)}}
}

// stage notes when one stage of the change ends and the next one begins. A newer
// assignment may lead back to an earlier one; its time counts there again.
func (e *Executor) stage(now schemas.Time) {
	c := &e.role.change
	to := flipHanding
	switch {
	case e.role.clear:
		to = flipVerifying
	case e.unstarted():
		to = flipReturning
	}
	if to == c.stage {
		return
	}
	c.took(now)
	c.stage, c.at = to, now
}

// took adds the time since the stage began to its figure.
func (c *flipState) took(now schemas.Time) {
	ns := int64(now - c.at)
	switch c.stage {
	case flipReturning:
		c.flip.ReturnNS += ns
	case flipHanding:
		c.flip.HandNS += ns
	case flipVerifying:
		c.flip.VerifyNS += ns
	}
}

// unstarted: a job that must leave is just being opened.
func (e *Executor) unstarted() bool {
	for _, j := range e.order {
		if j.phase < phasePrefilling && !e.allowed(j) {
			return true
		}
	}
	return false
}

// endFlip closes the record of a change to the assignment of that epoch. back is why
// the old role is in force again.
func (e *Executor) endFlip(now schemas.Time, to *schemas.Assignment, epoch uint64, back string) {
	r := &e.role
	c := &r.change
	c.took(now)
	f := c.flip
	f.To, f.Epoch, f.Plan, f.Back = to.Role, epoch, to.Plan, back
	for _, j := range e.order {
		if j.phase != phasePublishing {
			f.Kept++
		}
	}
	f.Finished = len(c.ends)
	r.flips++
	r.last = &f
	e.stats.flipNS = int64(now - c.since)
	r.change = flipState{}
}

// overdue enforces the deadlines. Jobs that should have left are returned as they are;
// what is in an operation's hands cannot be, and makes the change stuck in the end.
func (e *Executor) overdue(now schemas.Time, out []schemas.Msg) (_ []schemas.Msg, stuck bool) {
	c := &e.role.change
	if c.stage == flipVerifying {
		if int64(now-c.at) <= verifyNS {
			return out, false
		}
		c.problem = fmt.Sprintf("the engine did not answer within %d s whether it is as it should be", verifyNS/1_000_000_000)
		return out, true
	}
	age := int64(now - c.since)
	if age <= drainNS {
		return out, false
	}
	for _, j := range append([]*job(nil), e.order...) {
		switch {
		case e.allowed(j) || j.phase == phasePublishing:
		case !e.busyWith(j):
			out = e.done(j, schemas.OutcomeReturned, "", "role change ran into its deadline", out)
			out = e.forget(j, out)
		case age > stuckNS:
			c.problem = fmt.Sprintf("an operation of job %s has not come back for %d s", j.id, stuckNS/1_000_000_000)
			return out, true
		}
	}
	return out, false
}

// leftForRole counts a job that a change of role sent away.
func (e *Executor) leftForRole(j *job) {
	if !e.role.draining {
		return
	}
	c := &e.role.change
	delete(c.ends, j)
	if j.begun == 0 {
		c.flip.Returned++
		return
	}
	c.flip.Handed++
	c.steps = e.stats.decodeSteps
}

// holdsBack: decodes leave one after the other, each as soon as it is sealed, and the
// others go on decoding meanwhile: a reader then waits for the seal of its own turn and
// not for those of all. An engine that batches continuously is stopped once, for all.
func (e *Executor) holdsBack() bool {
	c := &e.role.change
	if e.cfg.Limits.Interrupt || int64(e.now-c.since) >= inTurnNS {
		return false
	}
	for _, j := range e.order {
		if j.Stage == schemas.StageDecode && j.leavesForRole() {
			return true
		}
	}
	return c.flip.Handed > 0 && c.steps == e.stats.decodeSteps
}

// finishes: a decode ends here if that is sooner than a hand-over.
func (e *Executor) finishes(j *job) bool {
	if e.remainingNS(j) > e.cfg.FinishNS {
		delete(e.role.change.ends, j) // it was slower than expected
		return false
	}
	e.role.change.ends[j] = true
	return true
}

// remainingNS estimates how long a decode still runs, from its limit and the
// measured speed.
func (e *Executor) remainingNS(j *job) int64 {
	if e.stats.decodeTPS <= 0 {
		return 1 << 62
	}
	return int64(float64(j.Ready.MaxNew-len(j.tokens)) / e.stats.decodeTPS * 1e9)
}

// stoodStill notices that this process did not run for a while: it was stopped, or its
// host was. A step is due at every heartbeat.
func (e *Executor) stoodStill(now schemas.Time) {
	r := &e.role
	if r.stepAt != 0 && int64(now-r.stepAt) > 2*e.cfg.HeartbeatNS {
		r.hold = now + settleNS
	}
	r.stepAt = now
}

// roleDue is when a change of role needs a step, besides those that messages make.
func (e *Executor) roleDue() schemas.Time {
	if r := &e.role; r.draining && r.stepAt < r.hold {
		return r.hold
	}
	return 1 << 62
}
