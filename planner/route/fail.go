package route

import "github.com/weir-dev/weir/schemas"

// unexport notes that a turn's KV does not wait any more where it was prefilled.
func (r *Router) unexport(t *turn) {
	if x := t.export; x != nil {
		t.export = nil
		x.exports -= t.ready.Prompt.N
		r.update(x)
	}
}

// release gives back every credit that a turn holds.
func (r *Router) release(t *turn) {
	r.unexport(t)
	if t.exec != nil {
		t.exec.vacate(t)
	}
	for _, x := range [...]*executor{t.exec, t.decodeOn} {
		if x == nil {
			continue
		}
		if _, ok := x.prefills[t.ready.Job]; ok {
			delete(x.prefills, t.ready.Job)
			x.tokens -= t.charged
		}
		delete(x.decodes, t.ready.Job)
		if x == t.decodeOn {
			x.coming -= t.ready.Prompt.N
		}
		if x.alone == t {
			x.alone = nil
		}
	}
	on, then := t.exec, t.decodeOn
	t.exec, t.decodeOn = nil, nil
	for _, n := range t.gives {
		n.gives--
	}
	t.gives = nil
	kept := t.keeps
	if t.keeps != nil {
		t.keeps.reserved, t.keeps = nil, nil
	}
	for _, x := range [...]*executor{on, then, kept} {
		if x != nil {
			r.update(x)
		}
	}
}

// fail ends a turn with a failure. The executor that works on it is told.
func (r *Router) fail(now schemas.Time, t *turn, f *schemas.Failure, out []schemas.Msg) []schemas.Msg {
	if t.state == stateFailing {
		return out
	}
	if t.exec != nil {
		out = append(out, r.cancelMsg(t.exec.id, t.ready.Job, t.attempt, f.Code))
	}
	r.release(t)
	r.unwait(t)
	t.state, t.failure = stateFailing, f
	r.failing = append(r.failing, t)
	r.counts.Failed++
	return r.publishFailure(now, t, out)
}

func (r *Router) publishFailure(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	t.failAt = now
	m := t.ready
	return append(out, schemas.Msg{
		Kind: schemas.KindResult, Subject: schemas.ResultSubject(m.Tenant, m.Session, m.Turn), Trace: t.trace,
		ID: m.MsgID("result"), ExpectSet: true, Confirm: true,
		Result: &schemas.Result{
			Header: schemas.H(), Tenant: m.Tenant, Session: m.Session, Turn: m.Turn, Branch: m.Branch, Job: m.Job, Attempt: max(1, t.attempt),
			Status: schemas.StatusFailed, Failure: t.failure, Model: m.Pool, Usage: schemas.Usage{Prompt: m.Prompt.N},
			Timing: schemas.Timing{AdmittedNS: m.AdmittedNS, TotalNS: int64(now) - m.AdmittedNS, Spans: t.spans}, Miss: t.miss,
		},
	})
}

func (r *Router) cancelMsg(executor, job string, attempt int, reason string) schemas.Msg {
	return schemas.Msg{
		Kind: schemas.KindCancel, Subject: schemas.CancelSubject(r.cfg.Cell, executor), Core: true,
		Cancel: &schemas.Cancel{Header: schemas.H(), Job: job, Attempt: attempt, Reason: reason},
	}
}

func (r *Router) dead(now schemas.Time, t *turn, f *schemas.Failure) schemas.Msg {
	m := t.ready
	return schemas.Msg{
		Kind: schemas.KindDead, Subject: schemas.DeadSubject(string(t.stage), m.Tenant), ID: m.MsgID("dead"), Trace: t.trace,
		Dead: &schemas.Dead{
			Header: schemas.H(), Stage: t.stage, Tenant: m.Tenant, Session: m.Session, Turn: m.Turn, AtNS: int64(now),
			Subject: schemas.ReadySubject(r.cfg.Cell, m.Tenant, m.Session, m.Turn), Seq: t.seq, Code: f.Code, Reason: f.Message,
		},
	}
}
