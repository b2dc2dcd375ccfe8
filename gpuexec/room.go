package gpuexec

import "github.com/weir-dev/weir/schemas"

// The engine's KV memory, where its sequences share one (Limits.KVTokens). A job is let
// in while there is room for its prompt, what all have generated, and a reserve for what
// they will generate: nobody knows how long an answer gets. When the reserve is used up
// as well, the youngest turn is sealed and handed over.

// reserve is what stays free for answers when a job is let in.
func (e *Executor) reserve() int { return e.cfg.Limits.KVTokens / 32 }

// fits tells whether a job may be let in beside jobs that hold used tokens. An empty
// engine takes any: one that is too long for it fails there, with the reason.
func (e *Executor) fits(j *job, used int) bool {
	limit := e.cfg.Limits.KVTokens
	return limit == 0 || used == 0 || used+j.Ready.Prompt.N+len(j.tokens)+e.reserve() <= limit
}

// hasRoom tells whether what a job brings would find room in the engine.
func (e *Executor) hasRoom(j *job) bool {
	return e.cfg.Limits.KVTokens == 0 || e.fits(j, e.kvUsed(true))
}

// kvUsed is the number of tokens whose KV running sequences hold, with those that are
// promised to jobs on their way in.
func (e *Executor) kvUsed(promised bool) (n int) {
	for _, j := range e.order {
		if j.seq >= 0 || promised && j.brought && j.phase != phasePublishing {
			n += j.Ready.Prompt.N + len(j.tokens)
		}
	}
	return n
}

// overfull tells whether the running rows could fill the memory before the next look:
// an engine ends an operation when it has no room for a step, and no step yields a block.
func (e *Executor) overfull(s *survey) bool {
	limit := e.cfg.Limits.KVTokens
	return limit > 0 && len(s.rows) > 1 && s.tokens+len(s.rows)*BlockTokens > limit
}

// handOverYoungest gives the youngest running turn back, sealed.
func (e *Executor) handOverYoungest(s *survey) *job {
	j := s.rows[len(s.rows)-1]
	j.phase, j.leave, j.reason = phaseSealing, leaveReturned, "the engine's KV memory is full"
	return j
}

// localMax is the most missing prompt tokens that a decode job computes here.
func (e *Executor) localMax() int {
	if a := e.role.assignment.Absorb; a != "" {
		return a.Max()
	}
	return e.cfg.LocalMax
}

// counted adds an engine operation to what reports say.
func (s *stats) counted(d *schemas.OpDone, rows int) {
	s.busyNS += d.TookNS
	switch {
	case d.Prefill != nil:
		s.prefillNS += d.TookNS
	case d.Decode != nil:
		s.decodeNS += d.TookNS
		s.decodeSteps += uint64(d.Decode.Steps)
		s.decodeRows += uint64(d.Decode.Steps * rows)
	}
}
