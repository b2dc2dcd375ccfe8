package gpuexec

import "github.com/weir-dev/weir/schemas"

// schedule starts the next engine operation when none is under way, and asks for
// what queued jobs still need from outside.
func (e *Executor) schedule(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	out = e.ask(out)
	if e.op.id != 0 {
		return out
	}
	for _, seq := range e.drops {
		out = e.emit(&schemas.Op{Drop: &schemas.DropOp{Seq: seq}}, out)
	}
	e.drops = e.drops[:0]
	if r := &e.role; r.draining && r.clear && !r.verified {
		return e.verify(now, out)
	}
	if j := e.find(phaseSealing); j != nil {
		return e.start(now, j, nil, &schemas.Op{Seal: &schemas.SealOp{Seq: j.seq}}, out)
	}
	if j := e.openable(); j != nil {
		return e.open(now, j, out)
	}
	pre, rows := e.find(phasePrefilling), e.decodeRows()
	if pre != nil && (len(rows) == 0 || !e.decodeNow) {
		e.decodeNow = true
		op := &schemas.Op{Prefill: &schemas.PrefillOp{Seq: pre.seq, MaxBlocks: 1 << 20, MaxNS: e.cfg.SliceNS}}
		return e.start(now, pre, nil, op, out)
	}
	e.decodeNow = false
	if j := e.sealDue(rows); j != nil {
		return e.start(now, j, nil, &schemas.Op{Seal: &schemas.SealOp{Seq: j.seq}}, out)
	}
	if len(rows) > 0 {
		return e.decode(now, rows, out)
	}
	return out
}

// find returns the oldest job in that phase.
func (e *Executor) find(p phase) *job {
	for _, j := range e.order {
		if j.phase == p {
			return j
		}
	}
	return nil
}

// ask sends the questions of jobs that are not ready: a second attempt needs the
// tokens that may have been delivered, and blocks of the prompt may lie elsewhere.
func (e *Executor) ask(out []schemas.Msg) []schemas.Msg {
	for _, j := range e.order {
		if j.phase != phaseQueued {
			continue
		}
		if j.Stage == schemas.StageDecode && j.Attempt > 1 && !j.asked {
			j.phase = phaseAsking
			r := j.Ready
			out = e.question(j, &schemas.Op{Delivered: &schemas.DeliveredOp{Tenant: r.Tenant, Session: r.Session, Turn: r.Turn}}, out)
			continue
		}
		if e.brings(j) {
			j.phase, j.brought = phaseAsking, true
			out = e.question(j, &schemas.Op{Bring: &schemas.BringOp{Ready: j.Ready, Head: j.head, Sources: j.Sources}}, out)
			continue
		}
		j.phase = phaseReady
	}
	return out
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
	e.op = opInFlight{id: e.opID, job: j, rows: rows}
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
func (e *Executor) openable() *job {
	free, open := -1, 0
	alone := false
	for i, s := range e.slots {
		if s == nil {
			if free < 0 {
				free = i
			}
			continue
		}
		open++
		alone = alone || s.Alone
	}
	if free < 0 || alone {
		return nil
	}
	prefills := 0
	for _, j := range e.order {
		if j.phase == phasePrefilling {
			prefills++
		}
	}
	for _, j := range e.order {
		if j.phase == phaseQueued || j.phase == phaseAsking {
			if j.Alone {
				return nil
			}
			continue
		}
		if j.phase != phaseReady {
			continue
		}
		if j.Alone {
			if open > 0 {
				return nil
			}
			return j
		}
		// Two prompts in work at once gain nothing: the engine does one step of
		// one prompt at a time.
		if j.Stage == schemas.StagePrefill && prefills > 0 {
			continue
		}
		return j
	}
	return nil
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

// decodeRows are the jobs of the next decode operation: those that run, or the
// oldest one that has not begun, by itself and without a step behind it, so that
// its first token leaves at once. The two take turns, so that new turns delay the
// running ones by one prompt's tail at a time.
func (e *Executor) decodeRows() []*job {
	var rows []*job
	var fresh *job
	for _, j := range e.order {
		switch {
		case j.phase != phaseDecoding:
		case j.first != 0:
			rows = append(rows, j)
		case fresh == nil:
			fresh = j
		}
	}
	if fresh != nil && (len(rows) == 0 || !e.freshLast) {
		return []*job{fresh}
	}
	return rows
}

func (e *Executor) decode(now schemas.Time, rows []*job, out []schemas.Msg) []schemas.Msg {
	op := &schemas.DecodeOp{MaxSteps: e.cfg.FrameTokens, MaxNS: e.cfg.FrameNS, Seqs: make([]int32, len(rows))}
	for i, j := range rows {
		op.Seqs[i] = j.seq
		if j.begun == 0 {
			j.begun = now
		}
	}
	if e.freshLast = rows[0].first == 0; e.freshLast {
		op.MaxSteps = 0 // the prompt's tail only
	}
	return e.start(now, nil, rows, &schemas.Op{Decode: op}, out)
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
		if n/BlockTokens <= j.sealedAt/BlockTokens {
			continue
		}
		spent := float64(n-j.sealedAt) / max(e.stats.decodeTPS, 1) * 1e9
		if float64(j.sealNS) <= e.cfg.SealShare*spent {
			return j
		}
	}
	return nil
}
