// Package workload describes what agents ask of a model, for replays without one:
// which session calls when, with which blocks of context, and what it says in
// between. Recorded traces and generated churn both become a Schedule.
package workload

import "fmt"

// BlockTokens is the number of tokens in a block.
const BlockTokens = 64

// Global is the first block id that means the same content in every session.
// Smaller ids mean something in their own session only.
const Global int32 = 1 << 30

// Run is consecutive block ids: From, From+1 … From+N-1. An id always follows the
// same id before it, so equal ids stand for equal prefixes.
type Run struct{ From, N int32 }

// Finish is how an answer ended.
type Finish uint8

// The ways in which an answer ends.
const (
	FinishStop  Finish = iota // the agent's user is next
	FinishTools               // a tool is next
)

// Call is one call of the model.
type Call struct {
	At  int64 // nanoseconds from the schedule's start
	For int64 // nanoseconds until the answer is there
	// Session indexes Schedule.Sessions. Line tells the session's lines of context
	// apart: 0 is the agent, others are its sub-agents and forks.
	Session, Line int32
	In, Out       int32 // tokens
	// Prompt is the context, In/64 whole blocks; up to 63 tokens at its end have no
	// id. The answer's tokens are the first ones behind the prompt in the next call
	// of the line that goes on.
	Prompt []Run
	Finish Finish
	Tool   string // the tool that it waits for, where the workload knows
	// Say are the events that the agent publishes, in order; those that a
	// replay without explicit events leaves out.
	Say []Say
	// Dropped is how many of Out tokens are reasoning that the next prompt leaves out.
	Dropped int32
}

// Say is an event of an agent, AGENT's kinds: tool_wait, user_wait, branch_fork,
// branch_end, compacted, prefix_rewrite, session_end.
type Say struct {
	Kind string
	// After is when it is said: nanoseconds after the call's answer is there.
	After int64
	Line  int32 // whom it is about; branch_fork names the new line, which forks from the call's
	Tool  string
	// Expect is the wait that the agent expects, in nanoseconds; 0 when it says nothing.
	Expect int64
}

// Session is one session of a schedule.
type Session struct {
	ID     string
	Tenant string
}

// Schedule is calls in the order of At.
type Schedule struct {
	Name     string
	Seed     uint64
	Sessions []Session
	Calls    []Call
}

// Blocks is the number of whole blocks in the prompt.
func (c *Call) Blocks() (n int) {
	for _, r := range c.Prompt {
		n += int(r.N)
	}
	return n
}

// Check reports the first call that a replay cannot run.
func (s *Schedule) Check() error {
	last := int64(0)
	for i := range s.Calls {
		c := &s.Calls[i]
		switch {
		case c.At < last:
			return fmt.Errorf("workload: %s: call %d begins at %d ns, before the one before it at %d ns", s.Name, i, c.At, last)
		case c.For < 0 || c.In < 0 || c.Out < 0 || c.Line < 0 || c.Dropped < 0 || c.Dropped > c.Out:
			return fmt.Errorf("workload: %s: call %d has a negative size, or drops more than its answer", s.Name, i)
		case int(c.Session) >= len(s.Sessions) || c.Session < 0:
			return fmt.Errorf("workload: %s: call %d is of session %d of %d", s.Name, i, c.Session, len(s.Sessions))
		case c.Blocks() != int(c.In)/BlockTokens:
			return fmt.Errorf("workload: %s: call %d has %d blocks for %d tokens", s.Name, i, c.Blocks(), c.In)
		}
		for _, r := range c.Prompt {
			if r.N <= 0 || r.From < 0 || int64(r.From)+int64(r.N) > 1<<31-1 {
				return fmt.Errorf("workload: %s: call %d has the run [%d, %d]", s.Name, i, r.From, r.N)
			}
		}
		last = c.At
	}
	return nil
}
