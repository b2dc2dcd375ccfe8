package gpuexec

import "github.com/weir-dev/weir/schemas"

// schedule starts the next engine operation when none is under way, and asks for
// what queued jobs still need from outside.
func (e *Executor) schedule(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	out = e.ask(out)
	if e.op.id != 0 {
		return e.interrupt(out)
	}
	for _, seq := range e.drops {
		out = e.emit(&schemas.Op{Drop: &schemas.DropOp{Seq: seq}}, out)
	}
	e.drops = e.drops[:0]
	if r := &e.role; r.draining && r.clear && !r.verified {
		return e.verify(now, out)
	}
	s := e.survey()
	if s.seal == nil && e.overfull(s) {
		s.seal = e.handOverYoungest(s)
	}
	if s.seal != nil {
		op := &schemas.SealOp{Seq: s.seal.seq, Tail: s.seal.Stage == schemas.StageDecode && s.seal.leave == leaveReturned}
		return e.start(now, s.seal, nil, &schemas.Op{Seal: op}, out)
	}
	if j := e.openable(s); j != nil {
		return e.open(now, j, out)
	}
	rows := s.decodeRows(e.freshLast, e.cfg.Limits.Interrupt)
	if len(s.prefills) > 0 && (len(rows) == 0 || !e.decodeNow) {
		e.decodeNow = true
		return e.prefill(now, s.prefills, out)
	}
	e.decodeNow = false
	if j := e.sealDue(rows); j != nil {
		return e.start(now, j, nil, &schemas.Op{Seal: &schemas.SealOp{Seq: j.seq}}, out)
	}
	if len(rows) > 0 {
		// One step for the first tokens is not yet the share of those that run. But it happens
		// once only: where rows begin at every step, prompts would wait without end.
		e.decodeNow = e.cfg.Limits.Interrupt && len(s.fresh) > 0 && !e.freshLast
		return e.decode(now, rows, len(s.prefills) > 0, out)
	}
	return out
}

// survey is what one look over all jobs found: with hundreds of rows a look for each
// question would cost more than the answers.
type survey struct {
	seal     *job   // the oldest that is to be sealed before it leaves
	prefills []*job // whose prompts are being computed, oldest first
	rows     []*job // that decode, oldest first, without those that have not begun
	fresh    []*job // that are complete and have not begun to decode
	ready    *job   // the oldest decode job that may be opened
	readyPre *job   // the oldest prefill job that may be opened
	alone    *job   // one that needs an empty engine, with nothing older before it
	open     int    // jobs with a sequence
	shut     bool   // a job runs alone
	tokens   int    // of KV, of all jobs that hold some or are about to
}

// survey looks at all jobs. The lists are valid until the next call.
func (e *Executor) survey() *survey {
	s := &e.found
	*s = survey{prefills: s.prefills[:0], rows: s.rows[:0], fresh: s.fresh[:0]}
	barrier := false // nothing younger passes a job that must run alone
	for _, j := range e.order {
		if j.seq >= 0 {
			s.open++
			s.shut = s.shut || j.Alone
			s.tokens += j.Ready.Prompt.N + len(j.tokens)
		} else if j.brought && j.phase != phasePublishing {
			s.tokens += j.Ready.Prompt.N + len(j.tokens)
		}
		switch j.phase {
		case phaseDecoding:
			if j.first != 0 {
				s.rows = append(s.rows, j)
			} else {
				s.fresh = append(s.fresh, j)
			}
		case phasePrefilling:
			s.prefills = append(s.prefills, j)
		case phaseSealing:
			if s.seal == nil {
				s.seal = j
			}
		case phaseQueued, phaseAsking:
			barrier = barrier || j.Alone
		case phaseReady:
			switch {
			case barrier:
			case j.Alone:
				s.alone, barrier = j, true
			case j.Stage == schemas.StagePrefill:
				if s.readyPre == nil {
					s.readyPre = j
				}
			case s.ready == nil:
				s.ready = j
			}
		case phaseOpening, phasePublishing:
		}
	}
	return s
}

// ask sends the questions of jobs that are not ready: a second attempt needs the
// tokens that may have been delivered, and blocks of the prompt may lie elsewhere.
func (e *Executor) ask(out []schemas.Msg) []schemas.Msg {
	if len(e.waiting) == 0 {
		return out
	}
	left := e.waiting[:0]
	for _, j := range e.waiting {
		switch {
		case j.dropped || j.phase != phaseQueued:
		case j.Stage == schemas.StageDecode && j.Attempt > 1 && !j.asked:
			j.phase = phaseAsking
			r := j.Ready
			out = e.question(j, &schemas.Op{Delivered: &schemas.DeliveredOp{Tenant: r.Tenant, Session: r.Session, Turn: r.Turn}}, out)
		case !e.brings(j):
			j.phase = phaseReady
		case len(left) > 0 || !e.hasRoom(j):
			left = append(left, j) // what it would bring needs room in the engine
		default:
			j.phase, j.brought = phaseAsking, true
			op := &schemas.BringOp{Ready: j.Ready, Head: j.head, Sources: j.Sources, From: j.PrefillOn}
			out = e.question(j, &schemas.Op{Bring: op}, out)
		}
	}
	clear(e.waiting[len(left):])
	e.waiting = left
	return out
}

// queue puts a job among those whose questions are to be asked.
func (e *Executor) queue(j *job) {
	j.phase = phaseQueued
	e.waiting = append(e.waiting, j)
}

// brings tells whether blocks should be brought in for a job: once, and once more
// when the tokens of the prompt's head have come, which name more blocks.
func (e *Executor) brings(j *job) bool {
	return !j.brought && (e.cfg.Lower || len(j.Sources) > 0)
}

func (e *Executor) question(j *job, op *schemas.Op, out []schemas.Msg) []schemas.Msg {
	op.Trace = j.trace
	out = e.emit(op, out)
	e.asks[e.opID] = j
	return out
}

func (e *Executor) emit(op *schemas.Op, out []schemas.Msg) []schemas.Msg {
	e.opID++
	op.ID = e.opID
	return append(out, schemas.Msg{Kind: schemas.KindOp, Op: op})
}

// start begins an engine operation for one job or several rows.
func (e *Executor) start(now schemas.Time, j *job, rows []*job, op *schemas.Op, out []schemas.Msg) []schemas.Msg {
	if j != nil && j.begun == 0 {
		j.begun = now
	}
	op.Trace = traceOf(j)
	out = e.emit(op, out)
	e.op = opInFlight{id: e.opID, job: j}
	if rows != nil {
		e.rows = append(e.rows[:0], rows...) // the survey's lists are used again
		e.op.rows = e.rows
	}
	return out
}

func traceOf(j *job) schemas.Trace {
	if j == nil {
		return schemas.Trace{}
	}
	return j.trace
}

// openable is the oldest job that may get a sequence now. A job that must run
// alone waits for an empty engine, and nothing younger passes it.
func (e *Executor) openable(s *survey) *job {
	if s.open >= len(e.slots) || s.shut {
		return nil
	}
	j := s.ready
	if p := s.readyPre; p != nil && (j == nil || p.order < j.order) && e.prefillRoom(s) {
		j = p
	}
	switch {
	case j == nil && s.alone != nil && s.open == 0:
		return s.alone
	case j == nil || !j.brought && !e.fits(j, s.tokens):
		return nil
	}
	return j
}

// prefillRoom tells whether one more prompt would give the engine something to do. One
// that computes one prompt at a time gains nothing from two in work.
func (e *Executor) prefillRoom(s *survey) bool {
	ranks, chunk := max(e.cfg.Limits.PrefillRanks, 1), e.cfg.Limits.PrefillChunk
	if len(s.prefills) < ranks {
		return true
	}
	if ranks == 1 || chunk == 0 {
		return false
	}
	next := 0 // tokens that the next step computes
	for _, j := range s.prefills {
		next += min(j.missing*BlockTokens, chunk)
	}
	return next < ranks*chunk
}

func (e *Executor) open(now schemas.Time, j *job, out []schemas.Msg) []schemas.Msg {
	for i, s := range e.slots {
		if s == nil {
			j.seq = int32(i)
			e.slots[i] = j
			break
		}
	}
	j.phase = phaseOpening
	op := &schemas.OpenOp{Seq: j.seq, Stage: j.Stage, Attempt: j.Attempt, Ready: j.Ready, Head: j.head, Delivered: j.delivered}
	if len(j.forced) > 0 {
		op.Delivered, op.Again = j.forced, true
	}
	return e.start(now, j, nil, &schemas.Op{Open: op}, out)
}

// prefill advances the oldest prompt, or all of them where the engine computes several
// side by side.
func (e *Executor) prefill(now schemas.Time, jobs []*job, out []schemas.Msg) []schemas.Msg {
	if e.cfg.Limits.PrefillRanks <= 1 {
		jobs = jobs[:1]
	}
	op := &schemas.PrefillOp{Seqs: make([]int32, len(jobs)), MaxBlocks: 1 << 20, MaxNS: e.cfg.SliceNS}
	for i, j := range jobs {
		op.Seqs[i] = j.seq
		if j.begun == 0 {
			j.begun = now
		}
	}
	var one *job // whose trace the operation belongs to
	if len(jobs) == 1 {
		one = jobs[0]
	}
	return e.start(now, one, jobs, &schemas.Op{Prefill: op}, out)
}

// decodeRows are the jobs of the next decode operation: those that run, or the
// oldest one that has not begun, by itself and without a step behind it, so that
// its first token leaves at once. The two take turns, so that new turns delay the
// running ones by one prompt's tail at a time. An engine that batches continuously
// takes all of them in one step.
func (s *survey) decodeRows(freshLast, together bool) []*job {
	switch {
	case len(s.fresh) == 0:
		return s.rows
	case together:
		s.rows = append(s.rows, s.fresh...)
		return s.rows
	case len(s.rows) == 0 || !freshLast:
		return s.fresh[:1]
	}
	return s.rows
}

func (e *Executor) decode(now schemas.Time, rows []*job, mixed bool, out []schemas.Msg) []schemas.Msg {
	op := &schemas.DecodeOp{MaxSteps: e.cfg.FrameTokens, MaxNS: e.cfg.FrameNS, Seqs: make([]int32, len(rows))}
	joins := false // a reader waits for a token of this attempt
	for i, j := range rows {
		op.Seqs[i] = j.seq
		joins, j.joins = joins || j.joins, false
	}
	fresh := rows[len(rows)-1].first == 0 // they stand behind those that run
	switch long := e.cfg.Limits.Interrupt; {
	case long && (fresh || joins):
		op.MaxSteps, op.MaxNS = 1, e.cfg.RunNS // the first tokens leave at once
	case long && mixed:
		op.MaxSteps, op.MaxNS = e.cfg.MixSteps, e.cfg.RunNS
	case long:
		op.MaxSteps, op.MaxNS = 1<<30, e.cfg.RunNS
	case fresh:
		op.MaxSteps = 0 // the prompt's tail only
	}
	e.freshLast = fresh
	out = e.start(now, nil, rows, &schemas.Op{Decode: op}, out)
	e.op.decode = true
	return out
}

// interrupt ends a long decode operation early when something else should start: a job
// can be opened, or one should leave.
func (e *Executor) interrupt(out []schemas.Msg) []schemas.Msg {
	if !e.cfg.Limits.Interrupt || !e.op.decode || e.op.stopping {
		return out
	}
	r := &e.role
	if !e.op.dropped && !(r.draining && r.clear && !r.verified) && !e.pressing() {
		return out
	}
	e.op.stopping = true
	return e.emit(&schemas.Op{Interrupt: &schemas.InterruptOp{Op: e.op.id}}, out)
}

// pressing tells whether a job waits for the engine to come back. It looks at few
// fields: it is asked on every message while an operation is under way.
func (e *Executor) pressing() bool {
	waits := false
	for _, j := range e.order {
		if j.phase == phaseSealing {
			return true
		}
		waits = waits || j.phase == phaseReady
	}
	return waits && e.openable(e.survey()) != nil
}

// sealDue is a decoding job whose generated blocks should be exported now: when
// the time since its last export makes that export cheap (SealShare). Exporting
// costs a copy of the whole sequence on engines with one stream per sequence, so
// doing it for every block would be quadratic.
func (e *Executor) sealDue(rows []*job) *job {
	for _, j := range rows {
		if j.first == 0 {
			continue // its caller waits for the first token
		}
		n := j.Ready.Prompt.N + len(j.tokens) - 1
		if n/BlockTokens <= j.sealedAt/BlockTokens || n-j.sealedAt < e.cfg.SealTokens {
			continue
		}
		spent := float64(n-j.sealedAt) / max(e.stats.decodeTPS, 1) * 1e9
		if float64(j.sealNS) <= e.cfg.SealShare*spent {
			return j
		}
	}
	return nil
}
