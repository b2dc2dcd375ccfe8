package lineage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/weir-dev/weir/schemas"
)

// refuse ends a turn with a failure.
func (l *Lineage) refuse(now schemas.Time, t *turn, code, message, param string, out []schemas.Msg) []schemas.Msg {
	l.counts.Refused++
	res := &schemas.Result{
		Header: schemas.H(), Tenant: t.sess.tenant, Session: t.sess.id, Turn: t.id, Job: schemas.JobID(t.sess.tenant, t.sess.id, t.id),
		Attempt: 1, Status: schemas.StatusFailed, Failure: &schemas.Failure{Code: code, Message: message, Param: param},
		Timing: schemas.Timing{AdmittedNS: int64(t.at), TotalNS: max(0, int64(now-t.at))},
	}
	res.Branch = t.on
	t.refusal = res
	t.sess.owed++
	return l.ended(now, t, res, append(out, t.refusalMsg()))
}

func (t *turn) refusalMsg() schemas.Msg {
	r := t.refusal
	return schemas.Msg{
		Kind: schemas.KindResult, Subject: schemas.ResultSubject(r.Tenant, r.Session, r.Turn), ID: schemas.TurnMsgID("result", r.Job, r.Timing.AdmittedNS),
		ExpectSet: true, Confirm: true, Trace: t.trace, Result: r,
	}
}

// retryNS is the pause before a publish that a stream refused is tried again.
const retryNS = 250_000_000

// published hears how a READY message or a refusal was taken. An acknowledged
// turn is never given up because a stream is full: it is published again until
// its deadline has passed and longer, for the caller must get a result.
func (l *Lineage) published(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	s, err := schemas.ParseSubject(in.Subject)
	if err != nil {
		return out
	}
	sess := l.sessions[sessionKey(s.Get("tenant"), s.Get("session"))]
	if sess == nil {
		return out
	}
	t := sess.turns[s.Get("turn")]
	if t == nil {
		return out
	}
	if in.Err == "" || in.Err == schemas.ErrTextConflict {
		if in.ID == cancelID(t) {
			return out // READY itself has an answer of its own
		}
		if s.Root == schemas.RootResult && t.refusal != nil {
			t.refusal = nil
			sess.owed--
		}
		t.ready = nil
		return out
	}
	l.retries = append(l.retries, t)
	if l.retryAt == schemas.Never {
		l.retryAt = now + retryNS
	}
	return out
}

// retry publishes again what a stream refused.
func (l *Lineage) retry(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	if now < l.retryAt {
		return out
	}
	ts := l.retries
	l.retries, l.retryAt = nil, schemas.Never
	for _, t := range ts {
		switch {
		case t.askAgain && t.state != turnEnded:
			out = l.askedAgain(now, t, out)
		case t.refusal != nil:
			out = append(out, t.refusalMsg())
		case t.ready != nil && t.state == turnReady:
			if t.cancelled {
				out = l.refuse(now, t, schemas.CodeCancelled, "cancelled by the caller", "", out)
				continue
			}
			if int64(now) > t.ready.DeadlineNS {
				out = l.refuse(now, t, schemas.CodeBusy, "the queue of rendered turns stayed full until the deadline", "", out)
				continue
			}
			out = append(out, l.readyMsg(t))
		case t.cancelled && t.state == turnReady:
			out = append(out, l.cancelMsg(t, "cancelled by the caller"))
		}
	}
	return out
}

func (l *Lineage) readyMsg(t *turn) schemas.Msg {
	r := t.ready
	return schemas.Msg{
		Kind: schemas.KindReady, Subject: schemas.ReadySubject(l.cfg.Cell, r.Tenant, r.Session, r.Turn), ID: r.MsgID("ready"),
		Confirm: true, Trace: t.trace, Ready: r,
	}
}

// Unreadable answers for a turn whose body cannot be decoded; the caller of this
// method writes the dead letter. The turn's id is taken from what can be read of
// the body, so that its caller hears of it, and is named after the sequence
// otherwise. An id that stands for a turn already is a conflict, and the turn that
// was first is not touched.
func (l *Lineage) Unreadable(now schemas.Time, subject string, seq uint64, body []byte, cause error) []schemas.Msg {
	sub, err := schemas.ParseSubject(subject)
	if err != nil || sub.Root != schemas.RootAgent || schemas.EventKind(sub.Get("kind")) != schemas.EventTurn {
		return nil
	}
	if l.started == 0 {
		l.started = now
	}
	l.saw("AGENT", seq)
	var lenient struct {
		Weir struct {
			Turn string `json:"turn"`
		} `json:"weir"`
	}
	// Of a body that is no JSON nothing is read, and the id stays empty.
	_ = json.Unmarshal(body, &lenient)
	sum := sha256.Sum256(body)
	t := &turn{
		id: lenient.Weir.Turn, digest: hex.EncodeToString(sum[:]), seq: seq, at: now,
		sess: l.session(sub.Get("tenant"), sub.Get("session"), now),
	}
	if !schemas.ValidID(t.id) {
		t.id = "t" + strconv.FormatUint(seq, 10)
	}
	if old := t.sess.turns[t.id]; old != nil {
		if old.digest == t.digest {
			l.counts.Duplicates++
			return nil
		}
		l.counts.Conflicts++
		return l.conflict(now, t)[:1] // without a second dead letter
	}
	l.remember(t.sess, t)
	return l.refuse(now, t, schemas.CodeInvalid, cause.Error(), "", nil)
}

// conflict tells a caller that its turn id was used with other content. The turn
// that was first is not touched.
func (l *Lineage) conflict(now schemas.Time, t *turn) []schemas.Msg {
	f := schemas.Failure{
		Code: schemas.CodeConflict, Param: "weir.turn",
		Message: fmt.Sprintf("turn %q of session %q was published before with other content; choose another id", t.id, t.sess.id),
	}
	return []schemas.Msg{
		{
			Kind: schemas.KindFrame, Subject: schemas.OutSubject(t.sess.tenant, t.sess.id, t.id), Core: true, Trace: t.trace,
			Frame: &schemas.Frame{Header: schemas.H(), Attempt: 1, Reject: &schemas.Reject{Digest: t.digest, Failure: f}},
		},
		{
			Kind: schemas.KindDead, Subject: schemas.DeadSubject(string(schemas.StageAgent), t.sess.tenant), Trace: t.trace,
			ID: "dead:" + t.digest,
			Dead: &schemas.Dead{
				Header: schemas.H(), Stage: schemas.StageAgent, Tenant: t.sess.tenant, Session: t.sess.id, Turn: t.id, Seq: t.seq, AtNS: int64(now),
				Subject: schemas.AgentSubject(t.sess.tenant, t.sess.id, schemas.EventTurn), Code: f.Code, Reason: f.Message,
			},
		},
	}
}

// resultIn takes a result that somebody stored.
func (l *Lineage) resultIn(now schemas.Time, r *schemas.Result, out []schemas.Msg) []schemas.Msg {
	s := l.sessions[sessionKey(r.Tenant, r.Session)]
	if s == nil {
		return out
	}
	t := s.turns[r.Turn]
	if t == nil || t.state == turnEnded {
		return out
	}
	if t.state != turnReady {
		t.result = r // still being rendered: applied when the prompt is known
		return out
	}
	return l.ended(now, t, r, out)
}

// ended applies a result to the branch and starts the turn that waits behind it.
func (l *Lineage) ended(now schemas.Time, t *turn, r *schemas.Result, out []schemas.Msg) []schemas.Msg {
	if t.state != turnEnded {
		t.state = turnEnded
		t.sess.pending--
		t.sess.used = now
	}
	b := t.branch
	if b == nil {
		t.free()
		return out
	}
	if r.Status == schemas.StatusOK && t.log != nil {
		out = l.answered(now, t, r, out)
	} else {
		out = l.failed(now, t, out)
	}
	t.free()
	if b.busy != t {
		for i, w := range b.wait {
			if w == t {
				b.wait = append(b.wait[:i], b.wait[i+1:]...)
				break
			}
		}
		return out
	}
	b.busy = nil
	t.sess.work = slices.DeleteFunc(t.sess.work, func(o *branch) bool { return o == b })
	if len(b.wait) > 0 {
		next := b.wait[0]
		b.wait = b.wait[1:]
		return l.release(now, t.sess, l.begin(now, next, out))
	}
	out = l.release(now, t.sess, out)
	if b.idle() && t.inferred && b.fresh && b.turns == 0 && b.guessed {
		l.forgetBranch(t.sess, b) // nothing ever came of it
	}
	return out
}

// free forgets what a turn needed while it was in work.
func (t *turn) free() {
	t.msg, t.base, t.log, t.result, t.branch = nil, nil, nil, nil, nil
	t.items, t.entries, t.old = nil, nil, nil
}

// answered makes prompt and answer the branch's context.
func (l *Lineage) answered(now schemas.Time, t *turn, r *schemas.Result, out []schemas.Msg) []schemas.Msg {
	s, b := t.sess, t.branch
	l.became(t)
	t.log.answered(r, len(t.entries))
	if old := b.log; old != nil && !b.fresh && t.shared/blockTokens < old.Computed/blockTokens {
		l.gone(s, old, t.shared/blockTokens)
	}
	l.setLog(s, b, t.log)
	hist := t.entries
	var last *entry
	if len(hist) > 0 {
		if last = s.answerEntry(hist, r); last != nil {
			hist = append(hist[:len(hist):len(hist)], last)
		}
	}
	l.setHist(s, b, hist)
	if l.tokens > l.cfg.MaxTokens || l.bytes > l.cfg.MaxBytes {
		l.makeRoom(s)
	}
	b.tail, b.fresh, s.last = t.id, false, b
	b.turns++
	t.known, t.msgs = r.Known(), len(hist)
	if b.known = t.known; t.msgs > 0 {
		t.ctx = chainOf(hist)
	}
	s.known[t.known] = t
	if last != nil && s.trees != nil && t.listed {
		s.trees.Append(b.id, hist[len(hist)-1].item(), int64(t.at))
	}
	return l.waits(now, t, r, last, out)
}

// failed leaves the branch's context as it was.
func (l *Lineage) failed(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	s, b := t.sess, t.branch
	if t.log != nil {
		t.log.Computed = len(t.log.Tokens)
		l.gone(s, t.log, t.shared/blockTokens) // what may have been computed of its prompt
	}
	if t.listed && s.trees != nil {
		if len(b.hist) > 0 && !(b.fresh && b.guessed) {
			s.trees.Set(b.id, b.parent, itemsOf(b.hist), int64(t.at))
		} else {
			s.trees.Remove(b.id)
		}
	}
	if b.busy != t {
		return out
	}
	if b.state == schemas.BranchRunning {
		// Nothing runs any more; a branch that seems to would never be evicted.
		out = l.change(now, s, b, schemas.BranchUserWaiting, "result", true, out)
	}
	return l.sayNow(now, s, b, out)
}

func cancelID(t *turn) string {
	return schemas.TurnMsgID("cancel", schemas.JobID(t.sess.tenant, t.sess.id, t.id), int64(t.at))
}

func (l *Lineage) cancelMsg(t *turn, reason string) schemas.Msg {
	job := schemas.JobID(t.sess.tenant, t.sess.id, t.id)
	return schemas.Msg{
		Kind: schemas.KindReady, Subject: schemas.ReadySubject(l.cfg.Cell, t.sess.tenant, t.sess.id, t.id), ID: cancelID(t), Trace: t.trace,
		Confirm: true,
		Ready: &schemas.Ready{
			Header: schemas.H(), Tenant: t.sess.tenant, Session: t.sess.id, Turn: t.id, Branch: t.on, Job: job, Cancel: true, Reason: reason,
		},
	}
}
