package gpuexec

import (
	"encoding/json"

	"github.com/weir-dev/weir/schemas"
)

type jsonRaw = json.RawMessage

// opDone brings the completion of an operation back to its job.
func (e *Executor) opDone(now schemas.Time, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	if d.Device != nil {
		e.device = *d.Device
	}
	if d.Health != nil {
		fit := e.health.Unfit
		if e.health = *d.Health; e.health.Unfit != fit {
			return e.report(now, out)
		}
		return out
	}
	if j := e.asks[d.ID]; j != nil {
		delete(e.asks, d.ID)
		return e.answered(now, j, d, out)
	}
	if d.ID != e.op.id {
		return out // a drop
	}
	op := e.op
	e.op = opInFlight{}
	e.stats.counted(d, len(op.rows))
	if d.Prefill != nil && d.Err == "" {
		return e.prefilled(now, op.rows, d, out)
	}
	if j := op.job; j != nil {
		j.busy += d.TookNS
		if d.Open != nil {
			j.prefill += d.TookNS
		}
		if j.dropped {
			e.free(j)
			return out
		}
	}
	switch {
	case op.verify:
		return e.verifiedRole(now, d, out)
	case op.rows != nil: // a decode, or a prefill that failed
		return e.decoded(now, op.rows, d, out)
	case d.Err != "":
		return e.fail(now, op.job, d.Code, d.Err, out)
	case d.Open != nil:
		return e.opened(now, op.job, d.Open, out)
	case d.Seal != nil:
		return e.sealed(now, op.job, d, out)
	}
	return out
}

// answered continues a job with what was asked for outside the engine.
func (e *Executor) answered(now schemas.Time, j *job, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	if j.dropped {
		return out
	}
	if d.Err != "" && d.Bring == nil {
		// Asking again is the router's choice: it places the job anew.
		out = e.done(j, schemas.OutcomeReturned, "", d.Err, out)
		return e.forget(j, out)
	}
	if a := d.Delivered; a != nil {
		if a.Finished {
			out = e.done(j, schemas.OutcomeDecoded, "", "the result existed already", out)
			return e.forget(j, out)
		}
		j.asked, j.ckptAt = true, now
		if e.cfg.Inexact {
			j.forced = a.Tokens // some of them may be in a checkpoint only: sent again
		} else {
			j.delivered = a.Tokens
			j.tokens = append(j.tokens, a.Tokens...)
			j.ckptLen = len(j.tokens)
		}
	}
	if b := d.Bring; b != nil && b.Brought > 0 {
		e.stats.bringTPS, e.stats.bringAt = smooth(e.stats.bringTPS, rate(b.Brought*BlockTokens, d.TookNS)), now
	}
	if t := d.Tokens; t != nil {
		if t.Error != "" || t.From != 0 || len(t.Tokens) < j.Ready.Prompt.TailFrom {
			// Lineage keeps them as long as the turn runs; when it starts again it does
			// not know them until it has read AGENT. So the turn is not given up here.
			out = e.done(j, schemas.OutcomeReturned, "", "the prompt's first tokens are not known: "+t.Error, out)
			return e.forget(j, out)
		}
		j.head, j.brought = t.Tokens[:j.Ready.Prompt.TailFrom], false
	}
	e.queue(j)
	return out
}

func (e *Executor) opened(_ schemas.Time, j *job, d *schemas.OpenDone, out []schemas.Msg) []schemas.Msg {
	if d.NeedHead {
		e.free(j)
		j.phase = phaseAsking
		r := j.Ready
		req := &schemas.TokensRequest{Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, To: r.Prompt.TailFrom}
		return e.question(j, &schemas.Op{Tokens: req}, out)
	}
	j.found(d)
	j.cached, j.missing = d.Cached, d.Missing
	j.sealedAt = d.Cached
	e.stats.cachedTokens += uint64(d.Cached)
	switch {
	case j.Stage == schemas.StageDecode && d.Missing*BlockTokens > e.localMax() && !j.Local && e.role.assignment.Role != schemas.RoleMixed:
		out = e.done(j, schemas.OutcomeReturned, "", "prompt blocks are missing", out)
		return e.forget(j, out)
	case d.Missing > 0:
		j.phase = phasePrefilling
	case j.Stage == schemas.StagePrefill:
		j.phase, j.leave = phaseSealing, leavePrefilled
	default:
		j.phase = phaseDecoding
		if d.Started && j.FirstNS > 0 {
			j.first, j.joins = schemas.Time(j.FirstNS), true // elsewhere: it joins the rows that run
		}
	}
	return out
}

// prefilled notes how far the prompts of a prefill operation came. Those that an engine
// computes side by side take its whole time each.
func (e *Executor) prefilled(now schemas.Time, rows []*job, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	total := 0
	for i, j := range rows {
		if i >= len(d.Prefill.Rows) {
			break
		}
		r := &d.Prefill.Rows[i]
		total += r.Computed
		j.busy += d.TookNS
		j.prefill += d.TookNS
		switch {
		case j.dropped:
			e.free(j)
			continue
		case r.Err != "":
			out = e.fail(now, j, r.Code, r.Err, out)
			continue
		}
		j.computed += r.Computed
		j.missing = r.Missing
		if j.phase != phasePrefilling || j.missing > 0 {
			continue // cancelled, returned, or not there yet
		}
		if j.Stage == schemas.StagePrefill {
			j.phase, j.leave = phaseSealing, leavePrefilled
		} else {
			j.phase, j.filled = phaseDecoding, now
		}
	}
	e.stats.prefillTokens += uint64(total)
	e.stats.prefillTPS = smooth(e.stats.prefillTPS, rate(total, d.TookNS))
	return out
}

// decoded distributes what a decode operation yielded.
func (e *Executor) decoded(now schemas.Time, rows []*job, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	if d.Err != "" || d.Decode == nil || len(d.Decode.Rows) != len(rows) {
		for _, j := range rows {
			out = e.fail(now, j, d.Code, d.Err, out)
		}
		return out
	}
	most := d.Decode.Steps // tokens of one sequence: a step may yield several
	for i, j := range rows {
		r := &d.Decode.Rows[i]
		most = max(most, len(r.Tokens))
		j.busy += d.TookNS / int64(len(rows))
		if j.dropped {
			e.free(j)
			continue
		}
		if r.Err != "" {
			out = e.fail(now, j, r.Code, r.Err, out)
			continue
		}
		out = e.took(now, j, r, out)
	}
	if d.Decode.Steps > 0 {
		e.stats.decodeTPS = smooth(e.stats.decodeTPS, rate(most, d.TookNS))
	}
	return out
}

// took adds a row's new tokens to its job and sends what is due.
func (e *Executor) took(now schemas.Time, j *job, r *schemas.DecodeRow, out []schemas.Msg) []schemas.Msg {
	fresh := j.first == 0
	if fresh {
		j.first, j.toFirst = now, j.busy+j.BusyNS
		if j.FirstNS > 0 { // on another executor, whose engine time is not known here
			j.first, j.toFirst = schemas.Time(j.FirstNS), 0
		}
	}
	if j.resumed == 0 && len(r.Tokens) > 0 {
		j.resumed, fresh = now, true // its reader waits
	}
	e.stats.decodeTokens += uint64(len(r.Tokens))
	if j.frame.at == 0 || !j.frame.pending() {
		j.frame.at = now
	}
	switch {
	case r.All == nil:
		j.tokens = append(j.tokens, r.Tokens...)
	case len(r.All) > len(j.tokens):
		j.tokens = r.All[:len(r.All):len(r.All)]
	}
	for _, lp := range r.Logprobs {
		j.logprobs = append(j.logprobs, lp)
	}
	j.frame.add(r)
	if fresh || r.Finish != "" || j.frame.n >= e.cfg.FrameTokens || int64(now-j.frame.at) >= e.cfg.FrameNS {
		out = e.flush(j, out)
	} else if at := j.frame.at + schemas.Time(e.cfg.FrameNS); e.frameAt > at && j.frame.pending() {
		e.frameAt = at
	}
	out = e.checkpoint(now, j, false, out)
	// A role change that came meanwhile need not hand over what has just ended.
	if r.Finish != "" && (j.phase == phaseDecoding || j.phase == phaseSealing && j.leave == leaveReturned) {
		j.ended = now
		j.finish, j.text, j.end, j.reason = r.Finish, r.Answer, r.End, ""
		j.message = r.Message
		j.phase, j.leave = phaseSealing, leaveResult
	}
	return out
}

// sealed continues a job whose blocks are in the tier, or did not fit.
func (e *Executor) sealed(now schemas.Time, j *job, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	j.sealNS = d.TookNS
	j.sealedAt = j.Ready.Prompt.N + max(0, len(j.tokens)-1)
	if j.phase != phaseSealing {
		return out // a seal in between
	}
	switch j.leave {
	case leavePrefilled:
		out = e.passOn(j, d.Seal, out)
	case leaveResult:
		j.phase = phasePublishing
		e.free(j)
		return e.result(now, j, out)
	case leaveReturned:
		out = e.flush(j, out)
		out = e.checkpoint(now, j, true, out)
		out = e.done(j, schemas.OutcomeReturned, "", j.reason, out)
	case leaveNot:
		out = e.done(j, schemas.OutcomeFailed, schemas.CodeCancelled, j.reason, out)
	}
	return e.forget(j, out)
}

// fail gives a job back with the reason. Whether it is tried again is the
// router's choice.
func (e *Executor) fail(_ schemas.Time, j *job, code, reason string, out []schemas.Msg) []schemas.Msg {
	if j.dropped {
		e.free(j)
		return out
	}
	if code == "" {
		code = schemas.CodeEngine
	}
	out = e.done(j, schemas.OutcomeFailed, code, reason, out)
	return e.forget(j, out)
}

func rate(tokens int, ns int64) float64 {
	if ns <= 0 {
		return 0
	}
	return float64(tokens) / float64(ns) * 1e9
}

// smooth is an exponential average with weight 0.2 for the newest sample.
func smooth(old, sample float64) float64 {
	if sample <= 0 {
		return old
	}
	if old == 0 {
		return sample
	}
	return 0.8*old + 0.2*sample
}
