package lineage

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	infer "github.com/weir-dev/weir/kvtier/branch"
	"github.com/weir-dev/weir/schemas"
)

// check finds the turn's model and what of the body it cannot honour.
func (l *Lineage) check(t *turn) *schemas.Failure {
	if t.model = l.model(t.msg.Model); t.model == nil {
		return &schemas.Failure{Code: schemas.CodeModel, Message: fmt.Sprintf("model %q is not served here", t.msg.Model), Param: "model"}
	}
	return checkBody(t.msg, t.model)
}

// keysOf is what names the turn's blocks besides its tokens and media.
func keysOf(t *turn) schemas.KeySpec {
	k := schemas.KeySpec{Salt: t.sess.tenant, Model: t.model.Digest, Template: t.model.Template, Vocab: t.model.Vocab}
	if options := canonicalJSON(t.msg.ChatTemplateKwargs); options != "" {
		sum := sha256.Sum256([]byte(options))
		k.Template += "+" + hex.EncodeToString(sum[:16])
	}
	return k
}

// canonicalJSON is an object with sorted keys, or "" when it holds nothing. What
// cannot be read stays as it is: the renderer refuses it.
func canonicalJSON(raw jsonRaw) string {
	if len(raw) == 0 {
		return ""
	}
	c, err := schemas.CanonicalJSON(raw)
	switch {
	case err != nil:
		return string(raw)
	case string(c) == "{}" || string(c) == "null":
		return ""
	}
	return string(c)
}

// toolsOf names the tool definitions of a turn, as they are written: templates
// print them so.
func toolsOf(tools []jsonRaw) string {
	if len(tools) == 0 {
		return ""
	}
	h := sha256.New()
	for _, raw := range tools {
		sum := sha256.Sum256(raw)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// render checks what can be checked without the model, and asks for the tokens.
func (l *Lineage) render(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	m := t.msg
	if m.BodyRef != nil {
		t.state = turnRendering
		return l.ask(t, &schemas.Op{Fetch: &schemas.FetchOp{Ref: *m.BodyRef}}, out)
	}
	if f := l.check(t); f != nil {
		return l.refuse(now, t, f.Code, f.Message, f.Param, out)
	}
	t.keys = keysOf(t)
	if t.base = t.branch.log; t.base != nil && t.base.Keys.Vocab != t.keys.Vocab {
		t.base = nil // its tokens mean other text
	}
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
		ResponseFormat: m.ResponseFormat, Grammar: m.Grammar, ToolChoice: m.ToolChoice, Parallel: m.ParallelToolCalls,
	}
	if len(m.Prompt) > 0 {
		if err := json.Unmarshal(m.Prompt, &req.Text); err != nil {
			return l.refuse(now, t, schemas.CodeInvalid, "prompt must be a string or an array of token ids", "prompt", out)
		}
	} else {
		if f := l.messages(t); f != nil {
			return l.refuse(now, t, f.Code, f.Message, f.Param, out)
		}
		req.Messages = rawsOf(t.entries)
	}
	if t.base != nil {
		req.Known, t.skip = t.base.known(t.kept)
		t.asks = len(req.Known)
		// The answer as it was generated, should the template write it otherwise.
		if a := t.base.Answer; a != nil && a.At < t.kept && a.Mark >= t.skip && a.Mark < t.skip+len(req.Known) {
			req.Answer = &schemas.AnswerText{At: a.At, Known: a.Mark - t.skip + 1, Text: a.Text, End: a.End}
		}
	}
	t.state = turnRendering
	return l.ask(t, &schemas.Op{Render: &schemas.RenderOp{Model: t.model.Name, Request: req}}, out)
}

// messages puts the turn's whole context together and tells what it is to its
// branch.
func (l *Lineage) messages(t *turn) *schemas.Failure {
	s, b, delta := t.sess, t.branch, t.msg.Weir.Known != ""
	switch {
	case delta:
		t.items = s.entries(t.msg.Messages, b.hist, nil)
	case t.items == nil:
		t.items = s.entries(t.msg.Messages, nil, b.hist)
	}
	all, kept, f := t.context(b.hist, t.items, delta)
	if f != nil {
		return f
	}
	for _, e := range all[kept:] {
		for _, ref := range refsIn(e.raw) {
			l.name(s, ref)
		}
	}
	t.entries, t.kept, t.old = all, kept, b.hist
	if t.kind == "" || t.kind == infer.Continue {
		t.kind = b.kindOf(all, kept)
	}
	s.clock++
	if b.turned = s.clock; b.first == 0 {
		b.first = len(all)
	}
	if s.trees != nil {
		s.trees.Set(b.id, b.parent, itemsOf(all), int64(t.at))
		t.listed = true
	}
	return nil
}

// kindOf says what a context is to the one that the branch had.
func (b *branch) kindOf(all []*entry, kept int) infer.Kind {
	switch {
	case len(b.hist) == 0:
		return infer.First
	case b.fresh:
		return infer.Fork
	case kept == len(b.hist):
		return infer.Continue
	case kept == len(all):
		return infer.Retry
	}
	const id = "b"
	f := infer.NewForest(infer.Options{Drop: dropBytes})
	f.Set(id, "", itemsOf(b.hist), 0)
	p := f.Place(infer.Request{Items: itemsOf(all)}, nil, func() string { return "new" })
	if p.New {
		return infer.Rewrite
	}
	return p.Kind
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

// tokensGiven takes a prompt that came as tokens. A delta continues the branch's tokens.
func (l *Lineage) tokensGiven(now schemas.Time, t *turn, toks schemas.Tokens, out []schemas.Msg) []schemas.Msg {
	if t.msg.ResponseFormat != nil || t.msg.Grammar != "" {
		return l.refuse(now, t, schemas.CodeInvalid, "a constrained answer needs messages or a text prompt", "response_format", out)
	}
	if at, id := outside(toks, t.model); at >= 0 {
		return l.refuse(now, t, schemas.CodeInvalid, fmt.Sprintf("token %d is %d, the model has tokens 0 to %d", at, id, t.model.Size-1), "weir.input_tokens", out)
	}
	log := &logbook{Tokens: toks, Keys: t.keys}
	if base := t.base; base != nil {
		shared := 0
		if t.msg.Weir.Known != "" {
			log.Tokens = append(append(schemas.Tokens(nil), base.Tokens...), toks...)
			log.Media, log.Uncached, shared = base.Media, base.Uncached, len(base.Tokens)
		}
		log.share(base, shared)
	}
	return l.publish(now, t, log, &schemas.RenderReply{}, out)
}

// continues checks that the digest names the end of the branch, and that what
// comes can be put behind it.
func (l *Lineage) continues(t *turn) *schemas.Failure {
	b, m := t.branch, t.msg
	switch {
	case b.known == "" || b.known != m.Weir.Known || b.log == nil && len(b.hist) == 0:
		return needFull(m.Weir.Known, fmt.Sprintf("branch %q", b.id))
	case len(m.Messages) > 0 && len(b.hist) == 0:
		return &schemas.Failure{
			Code: schemas.CodeNeedFull, Param: "weir.known",
			Message: fmt.Sprintf("the context of branch %q was not made from messages, so messages cannot continue it; publish a new turn with all of them", b.id),
		}
	case len(m.Messages) == 0 && t.base == nil:
		return needFull(m.Weir.Known, fmt.Sprintf("the tokens of branch %q", b.id))
	case len(m.Prompt) > 0 && m.Prompt[0] == '"':
		return invalid("prompt", "a text prompt does not continue weir.known; send messages, tokens, or the whole prompt without weir.known")
	}
	return nil
}

// rendered takes the tokens of a prompt.
func (l *Lineage) rendered(now schemas.Time, t *turn, r *schemas.RenderReply, out []schemas.Msg) []schemas.Msg {
	if f := r.Failure; f != nil {
		return l.refuse(now, t, f.Code, f.Message, f.Param, out)
	}
	base := t.base
	if base == nil {
		base = &logbook{}
	}
	if r.Matched < 0 || r.Matched > t.asks {
		return l.refuse(now, t, schemas.CodeInternal, fmt.Sprintf("the tokenizer matched known text %d of %d", r.Matched, t.asks), "", out)
	}
	at := -1
	if r.Matched > 0 {
		at = r.Matched - 1 + t.skip
	}
	if a := base.Answer; r.Answered != 0 && (a == nil || at != a.Mark || r.Answered < base.Marks[at].Text || r.Answered > len(r.Text)) || at >= 0 && base.Marks[at].Text > len(r.Text) {
		return l.refuse(now, t, schemas.CodeInternal, fmt.Sprintf("the tokenizer found the answer up to byte %d of %d, behind known text %d", r.Answered, len(r.Text), r.Matched), "", out)
	}
	l.counts.Rewrites.add(r.Rewrite)
	l.learnDrop(t, r.Rewrite)
	log := base.extend(at, r.Answered, prompt{
		keys: t.keys, tools: toolsOf(t.msg.Tools), items: len(t.entries), text: r.Text, rest: r.Tokens, media: r.Media, uncached: r.Uncached,
	})
	t.at0 = at
	l.counts.Tokenized += uint64(len(r.Tokens))
	l.counts.Spliced += uint64(len(log.Tokens) - len(r.Tokens))
	return l.publish(now, t, log, r, out)
}

// publish makes the turn ready, or applies the result that exists already.
func (l *Lineage) publish(now schemas.Time, t *turn, log *logbook, r *schemas.RenderReply, out []schemas.Msg) []schemas.Msg {
	n := len(log.Tokens)
	if n == 0 {
		return l.refuse(now, t, schemas.CodeInvalid, "the prompt is empty", "messages", out)
	}
	if n >= t.model.Context {
		return l.refuse(now, t, schemas.CodeTooLong, fmt.Sprintf("this model's context is %d tokens, the prompt has %d; shorten it or start with a larger --ctx", t.model.Context, n), "messages", out)
	}
	t.log, t.state, t.shared = log, turnReady, log.Computed
	if r := t.result; r != nil {
		if r.Status == schemas.StatusOK {
			out = l.running(now, t, out)
		}
		return l.ended(now, t, r, out)
	}
	if d := t.msg.Weir.DeadlineNS; d > 0 && d <= int64(now) && !t.published {
		return l.refuse(now, t, schemas.CodeDeadline, "weir.deadline_ns had passed before the turn could start", "weir.deadline_ns", out)
	}
	var ready *schemas.Ready
	if !t.published {
		var f *schemas.Failure
		if ready, f = l.ready(now, t, log, r); f == nil {
			f = tooLarge(ready)
		}
		if f != nil {
			return l.refuse(now, t, f.Code, f.Message, f.Param, out)
		}
	}
	l.counts.Admitted++
	out = l.running(now, t, out)
	if ready != nil {
		t.ready = ready
		out = append(out, l.readyMsg(t))
	}
	if t.cancelled {
		out = append(out, l.cancelMsg(t, "cancelled by the caller"))
	}
	return out
}

// ready puts the turn's message together.
func (l *Lineage) ready(now schemas.Time, t *turn, log *logbook, r *schemas.RenderReply) (*schemas.Ready, *schemas.Failure) {
	m, n := t.msg, len(log.Tokens)
	p := schemas.Prompt{N: n, Media: log.Media, Uncached: log.Uncached}
	if root, ok := l.root(log.Keys); ok {
		p.Path, p.Rest, p.TailFrom = log.path(n, root)
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
	out := &schemas.Ready{
		Header: schemas.H(), Tenant: t.sess.tenant, Session: t.sess.id, Turn: t.id, Branch: t.branch.id, Job: job, Pool: t.model.Name,
		Prompt: p, Keys: log.Keys, Sampling: sampling(m, job, t.seq), MaxNew: maxNew, Stop: m.Stop, Force: m.Weir.ForceOutput,
		IgnoreEOS: m.Weir.IgnoreEOS || m.IgnoreEOS != nil && *m.IgnoreEOS, Parse: r.Parse, Miss: t.miss(log, r),
		ReadyNS: int64(now), AdmittedNS: int64(t.at), DeadlineNS: deadline, Priority: m.Weir.Priority,
	}
	out.Sampling.Grammar = r.Grammar
	if len(p.Tail)+len(out.Force) > surelyFits {
		if _, err := schemas.Encode(out); err != nil {
			return nil, &schemas.Failure{Code: schemas.CodeTooLong, Param: "messages", Message: fmt.Sprintf("%d tokens of the prompt are not in the cache, more than one message carries: %s", len(p.Tail), err)}
		}
	}
	return out, nil
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

// drawSeed makes a seed for a turn that came without one. It follows from what is
// stored, so a lineage that starts again draws the same. It has 53 bits: clients in
// JavaScript read more as another number, and could not ask for the same answer.
func drawSeed(job string, seq uint64) uint64 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("weir seed "+job), seq))
	return binary.BigEndian.Uint64(sum[:]) >> 11
}
