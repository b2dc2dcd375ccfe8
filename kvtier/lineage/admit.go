package lineage

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

type jsonRaw = json.RawMessage

// turnIn takes a published turn.
func (l *Lineage) turnIn(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	sub, err := schemas.ParseSubject(in.Subject)
	if err != nil {
		return out
	}
	m := in.Turn
	s := l.session(sub.Get("tenant"), sub.Get("session"), now)
	t := &turn{
		id: m.Weir.Turn, digest: in.Digest, seq: in.Seq, sess: s, msg: m, at: in.At, trace: in.Trace,
	}
	if m.Weir.Digest != "" {
		t.digest = m.Weir.Digest
	}
	if t.id == "" {
		t.id = "t" + strconv.FormatUint(in.Seq, 10)
	}
	if t.at == 0 {
		t.at = now
	}
	if old := s.turns[t.id]; old != nil {
		if old.digest == t.digest {
			l.counts.Duplicates++
			return out
		}
		l.counts.Conflicts++
		return append(out, l.conflict(now, t)...)
	}
	l.remember(s, t)
	name := m.Weir.Branch
	if name == "" {
		name = schemas.DefaultBranch
	}
	b := s.branches[name]
	if b == nil {
		if len(s.branches) >= l.cfg.MaxBranches {
			return l.refuse(now, t, schemas.CodeBusy, fmt.Sprintf("the session has %d branches already", len(s.branches)), "weir.branch", out)
		}
		b = &branch{id: name}
		if m.Weir.Parent != "" && !l.older(t) {
			if p := s.branches[m.Weir.Parent]; p == nil {
				return l.refuse(now, t, schemas.CodeSession, fmt.Sprintf("branch %q, from which %q is to fork, is not known", m.Weir.Parent, name), "weir.parent", out)
			}
		}
		if p := s.branches[m.Weir.Parent]; p != nil && p.log != nil {
			b.log, b.tail = p.log, p.tail
			s.tokens += len(p.log.Tokens)
			l.tokens += len(p.log.Tokens)
		}
		s.branches[name] = b
	}
	t.branch = b
	if b.busy != nil {
		if len(b.wait) >= l.cfg.MaxQueue {
			return l.refuse(now, t, schemas.CodeBusy, fmt.Sprintf("%d turns of branch %q are waiting already", len(b.wait), name), "", out)
		}
		b.wait = append(b.wait, t)
		return out
	}
	return l.begin(now, t, out)
}

// remember keeps a turn id for idempotency, within the bound.
func (l *Lineage) remember(s *session, t *turn) {
	s.turns[t.id] = t
	s.order = append(s.order, t.id)
	s.pending++
	for len(s.order) > l.cfg.MaxTurns {
		old := s.turns[s.order[0]]
		if old != nil && old.state != turnEnded {
			break
		}
		delete(s.turns, s.order[0])
		s.order = s.order[1:]
	}
}

// older: the turn was published before this process started, so an earlier one
// may have handled it.
func (l *Lineage) older(t *turn) bool { return t.at < l.started }

// begin starts the work on a turn whose branch is free.
func (l *Lineage) begin(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	t.branch.busy = t
	if (l.older(t) || l.manyTurns(t.sess)) && !t.looked {
		t.state = turnLooking
		return l.ask(t, &schemas.Op{Lookup: &schemas.LookupOp{Tenant: t.sess.tenant, Session: t.sess.id, Turn: t.id}}, out)
	}
	if t.cancelled && t.result == nil && !t.published {
		return l.refuse(now, t, schemas.CodeCancelled, "cancelled before it started", "", out)
	}
	return l.render(now, t, out)
}

// manyTurns: ids of this session have been forgotten, so an unknown id may be an old one.
func (l *Lineage) manyTurns(s *session) bool { return s.again || len(s.order) >= l.cfg.MaxTurns }

func (l *Lineage) ask(t *turn, op *schemas.Op, out []schemas.Msg) []schemas.Msg {
	l.opID++
	op.ID, op.Trace = l.opID, t.trace
	l.asks[op.ID] = t
	return append(out, schemas.Msg{Kind: schemas.KindOp, Op: op})
}

// opDone continues a turn with the answer that it waited for.
func (l *Lineage) opDone(now schemas.Time, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	t := l.asks[d.ID]
	if t == nil {
		return out
	}
	delete(l.asks, d.ID)
	switch {
	case t.state == turnEnded:
		return out
	case d.Err != "" && d.Code == schemas.CodeBusy && t.state != turnReady:
		return l.later(now, t, out)
	case d.Err != "":
		code := d.Code
		if code == "" {
			code = schemas.CodeInternal
		}
		return l.refuse(now, t, code, d.Err, "", out)
	case d.Lookup != nil:
		t.looked, t.published = true, d.Lookup.Ready
		if t.result == nil { // it may have come while it was looked for
			t.result = d.Lookup.Result
		}
		return l.begin(now, t, out)
	case d.Fetch != nil:
		return l.fetched(now, t, d.Fetch, out)
	case d.Render != nil:
		return l.rendered(now, t, &d.Render.Reply, out)
	}
	return out
}

// later asks again soon: what was acknowledged is not given up because many turns
// are being looked up at once, as after a restart. The deadline bounds it.
func (l *Lineage) later(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	if int64(now-t.at) > l.cfg.DeadlineNS {
		return l.refuse(now, t, schemas.CodeBusy, "too many turns were being read at once until the deadline", "", out)
	}
	t.askAgain = true
	l.retries = append(l.retries, t)
	if l.retryAt == schemas.Never {
		l.retryAt = now + retryNS
	}
	return out
}

// render checks what can be checked without the model, and asks for the tokens.
func (l *Lineage) render(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	m := t.msg
	if m.BodyRef != nil {
		t.state = turnRendering
		return l.ask(t, &schemas.Op{Fetch: &schemas.FetchOp{Ref: *m.BodyRef}}, out)
	}
	if t.model = l.model(m.Model); t.model == nil {
		return l.refuse(now, t, schemas.CodeModel, fmt.Sprintf("model %q is not served here", m.Model), "model", out)
	}
	if f := checkBody(m, t.model); f != nil {
		return l.refuse(now, t, f.Code, f.Message, f.Param, out)
	}
	t.base = t.branch.log
	if m.Weir.Known != "" {
		f := l.continues(t)
		if f != nil && (t.result != nil || t.published) {
			return l.goesOn(now, t, out)
		}
		if f != nil {
			return l.refuse(now, t, f.Code, f.Message, f.Param, out)
		}
	}
	if len(m.Weir.InputTokens) > 0 {
		return l.tokensGiven(now, t, m.Weir.InputTokens, out)
	}
	if toks, ok := promptTokens(m.Prompt); ok {
		return l.tokensGiven(now, t, toks, out)
	}
	req := schemas.RenderRequest{
		Header: schemas.H(), Tools: m.Tools, Kwargs: m.ChatTemplateKwargs, NowNS: int64(t.at),
		ResponseFormat: m.ResponseFormat, Grammar: m.Grammar,
	}
	if len(m.Prompt) > 0 {
		if err := json.Unmarshal(m.Prompt, &req.Text); err != nil {
			return l.refuse(now, t, schemas.CodeInvalid, "prompt must be a string or an array of token ids", "prompt", out)
		}
	} else {
		t.messages = m.Messages
		if m.Weir.Known != "" {
			t.messages = append(append([]jsonRaw(nil), l.messagesBefore(t)...), m.Messages...)
		}
		req.Messages = t.messages
	}
	if t.base != nil {
		req.Known, t.skip = t.base.known()
	}
	t.state = turnRendering
	return l.ask(t, &schemas.Op{Render: &schemas.RenderOp{Model: t.model.Name, Request: req}}, out)
}

// goesOn takes an earlier life's word for a turn whose prefix is not here any more:
// the branch that it forked from went on before AGENT was read again. It must not
// fail for that. Its context is not known, so the next turn is asked for all
// messages.
func (l *Lineage) goesOn(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	if t.result != nil {
		return l.ended(now, t, t.result, out)
	}
	t.state = turnReady
	l.counts.Admitted++
	if t.cancelled {
		out = append(out, l.cancelMsg(t, "cancelled by the caller"))
	}
	return out
}

// fetched puts a body from the payload bucket in the place of its reference. Ids
// stay those of the message on the bus.
func (l *Lineage) fetched(now schemas.Time, t *turn, d *schemas.FetchDone, out []schemas.Msg) []schemas.Msg {
	if f := d.Failure; f != nil {
		return l.refuse(now, t, f.Code, f.Message, f.Param, out)
	}
	if d.Turn.BodyRef != nil {
		return l.refuse(now, t, schemas.CodeInvalid, "a body in the payload bucket refers to another one", "body_ref", out)
	}
	meta := t.msg.Weir
	meta.InputTokens, meta.ForceOutput = d.Turn.Weir.InputTokens, d.Turn.Weir.ForceOutput
	t.msg = d.Turn
	t.msg.Weir = meta
	return l.render(now, t, out)
}

// tokensGiven takes a prompt that came as tokens. A delta continues the branch's tokens.
func (l *Lineage) tokensGiven(now schemas.Time, t *turn, toks schemas.Tokens, out []schemas.Msg) []schemas.Msg {
	if t.msg.ResponseFormat != nil || t.msg.Grammar != "" {
		return l.refuse(now, t, schemas.CodeInvalid, "a constrained answer needs messages or a text prompt", "response_format", out)
	}
	if at, id := outside(toks, t.model); at >= 0 {
		return l.refuse(now, t, schemas.CodeInvalid, fmt.Sprintf("token %d is %d, the model has tokens 0 to %d", at, id, t.model.Size-1), "weir.input_tokens", out)
	}
	log := &logbook{Tokens: toks}
	if base := t.base; base != nil {
		shared := sharedPrefix(base.Tokens, toks)
		if t.msg.Weir.Known != "" {
			log.Tokens = append(append(schemas.Tokens(nil), base.Tokens...), toks...)
			shared = len(base.Tokens)
		}
		log.Computed = min(base.Computed, shared)
		log.inherit(base)
	}
	return l.publish(now, t, log, "", out)
}

func sharedPrefix(a, b schemas.Tokens) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// continues checks that the digest names the end of the branch, and that what
// comes can be put behind it.
func (l *Lineage) continues(t *turn) *schemas.Failure {
	want := t.msg.Weir.Known
	tail := t.sess.turns[t.branch.tail]
	if t.branch.log == nil || tail == nil || tail.known != want {
		return &schemas.Failure{
			Code: schemas.CodeNeedFull, Param: "weir.known",
			Message: fmt.Sprintf("%q does not name the end of branch %q here; publish a new turn with all messages", want, t.branch.id),
		}
	}
	switch m := t.msg; {
	case len(m.Messages) > 0 && tail.messages == nil:
		return &schemas.Failure{
			Code: schemas.CodeNeedFull, Param: "weir.known",
			Message: fmt.Sprintf("the context of branch %q was not made from messages, so messages cannot continue it; publish a new turn with all of them", t.branch.id),
		}
	case len(m.Prompt) > 0 && m.Prompt[0] == '"':
		return &schemas.Failure{
			Code: schemas.CodeInvalid, Param: "prompt",
			Message: "a text prompt does not continue weir.known; send messages, tokens, or the whole prompt without weir.known",
		}
	}
	return nil
}

// messagesBefore are the messages that the branch's context was rendered from,
// with the answer behind them.
func (l *Lineage) messagesBefore(t *turn) []jsonRaw {
	tail := t.sess.turns[t.branch.tail]
	if tail == nil {
		return nil
	}
	return tail.messages
}

// rendered takes the tokens of a prompt.
func (l *Lineage) rendered(now schemas.Time, t *turn, r *schemas.RenderReply, out []schemas.Msg) []schemas.Msg {
	if f := r.Failure; f != nil {
		return l.refuse(now, t, f.Code, f.Message, f.Param, out)
	}
	at := -1
	base := t.base
	if base == nil {
		base = &logbook{}
	}
	if r.Matched < 0 || r.Matched+t.skip > len(base.Marks) {
		return l.refuse(now, t, schemas.CodeInternal, fmt.Sprintf("the tokenizer matched known text %d of %d", r.Matched, len(base.Marks)-t.skip), "", out)
	}
	if r.Matched > 0 {
		at = r.Matched - 1 + t.skip
	}
	log := base.extend(at, r.Text, r.Tokens)
	l.counts.Tokenized += uint64(len(r.Tokens))
	l.counts.Spliced += uint64(len(log.Tokens) - len(r.Tokens))
	return l.publish(now, t, log, r.Grammar, out)
}

// publish makes the turn ready, or applies the result that exists already.
func (l *Lineage) publish(now schemas.Time, t *turn, log *logbook, grammar string, out []schemas.Msg) []schemas.Msg {
	n := len(log.Tokens)
	if n == 0 {
		return l.refuse(now, t, schemas.CodeInvalid, "the prompt is empty", "messages", out)
	}
	if n >= t.model.Context {
		return l.refuse(now, t, schemas.CodeTooLong, fmt.Sprintf("this model's context is %d tokens, the prompt has %d; shorten it or start with a larger --ctx", t.model.Context, n), "messages", out)
	}
	t.log, t.state = log, turnReady
	if t.result != nil {
		return l.ended(now, t, t.result, out)
	}
	if d := t.msg.Weir.DeadlineNS; d > 0 && d <= int64(now) && !t.published {
		return l.refuse(now, t, schemas.CodeDeadline, "weir.deadline_ns had passed before the turn could start", "weir.deadline_ns", out)
	}
	l.counts.Admitted++
	out = l.branchChange(now, t, schemas.BranchRunning, out)
	if !t.published {
		r, f := l.ready(t, log, grammar)
		if f == nil {
			f = tooLarge(r)
		}
		if f != nil {
			return l.refuse(now, t, f.Code, f.Message, f.Param, out)
		}
		t.ready = r
		out = append(out, l.readyMsg(t))
	}
	if t.cancelled {
		out = append(out, l.cancelMsg(t, "cancelled by the caller"))
	}
	return out
}

// ready puts the turn's message together.
func (l *Lineage) ready(t *turn, log *logbook, grammar string) (*schemas.Ready, *schemas.Failure) {
	m, n := t.msg, len(log.Tokens)
	keys := schemas.KeySpec{Salt: t.sess.tenant, Model: t.model.Digest, Template: t.model.Template, Vocab: t.model.Vocab}
	p := schemas.Prompt{N: n}
	if f, ok := l.format[t.model.Name]; ok {
		if root, err := Root(keys, f); err == nil {
			p.Path, p.TailFrom = log.path(n, root)
		}
	}
	p.Tail = log.Tokens[p.TailFrom:]
	job := schemas.JobID(t.sess.tenant, t.sess.id, t.id)
	maxNew := t.model.Context - n
	if v := firstSet(m.MaxCompletionTokens, m.MaxTokens); v != nil {
		maxNew = min(maxNew, int(*v))
	}
	if k := len(m.Weir.ForceOutput); k > 0 {
		if k > t.model.Context-n {
			return nil, &schemas.Failure{Code: schemas.CodeTooLong, Param: "weir.force_output", Message: fmt.Sprintf("prompt and forced output have %d tokens, the context is %d", n+k, t.model.Context)}
		}
		maxNew = k
	}
	deadline := m.Weir.DeadlineNS
	if deadline == 0 {
		deadline = int64(t.at) + l.cfg.DeadlineNS
	}
	r := &schemas.Ready{
		Header: schemas.H(), Tenant: t.sess.tenant, Session: t.sess.id, Turn: t.id, Branch: t.branch.id, Job: job, Pool: t.model.Name,
		Prompt: p, Keys: keys, Sampling: sampling(m, job, t.seq), MaxNew: maxNew, Stop: m.Stop, Force: m.Weir.ForceOutput,
		IgnoreEOS: m.Weir.IgnoreEOS || m.IgnoreEOS != nil && *m.IgnoreEOS, AdmittedNS: int64(t.at), DeadlineNS: deadline,
	}
	r.Sampling.Grammar = grammar
	if len(p.Tail)+len(r.Force) > surelyFits {
		if _, err := schemas.Encode(r); err != nil {
			return nil, &schemas.Failure{Code: schemas.CodeTooLong, Param: "messages", Message: fmt.Sprintf("%d tokens of the prompt are not in the cache, more than one message carries: %s", len(p.Tail), err)}
		}
	}
	return r, nil
}

// surelyFits tokens fit into a message with all that stands beside them: a token
// takes at most 11 bytes of the message's 1,000 KiB.
const surelyFits = 64 << 10

func firstSet(vs ...*int64) *int64 {
	for _, v := range vs {
		if v != nil {
			return v
		}
	}
	return nil
}

// Root is the root of a turn's block keys on engines of that format.
func Root(k schemas.KeySpec, f schemas.KVFormat) (kvtier.Key, error) {
	s := kvtier.Spec{
		TenantSalt: k.Salt, ModelDigest: k.Model, Adapter: k.Adapter, Template: k.Template, Tokenizer: k.Vocab,
		Engine: f.Engine, EngineVersion: f.Version, Numerics: f.Numerics, FormatVersion: f.Layout,
	}
	if err := s.Validate(); err != nil {
		return kvtier.Key{}, err
	}
	return s.Root(), nil
}

// drawSeed makes a seed for a turn that came without one. It follows from what is
// stored, so a lineage that starts again draws the same. It has 53 bits: clients in
// JavaScript read more as another number, and could not ask for the same answer.
func drawSeed(job string, seq uint64) uint64 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("weir seed "+job), seq))
	return binary.BigEndian.Uint64(sum[:]) >> 11
}
