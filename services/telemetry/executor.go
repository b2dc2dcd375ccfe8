package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-dev/weir/schemas"
)

// sealSpans bounds the spans of exports per job; more are only counted.
const sealSpans = 16

// Executor traces the jobs of one executor. In and Out are called from the
// actor's goroutine, Op from the engine's and others.
type Executor struct {
	t      *Tracer
	active atomic.Int64 // sampled jobs; while it is 0 operations cost one load

	mu    sync.Mutex
	jobs  *ledger[*jobSpan]  // by the span's own traceparent
	byJob map[string]string  // traceparent, by job id and stage
	seqs  map[int32]*jobSpan // by engine sequence
}

// jobSpan is one sampled job.
type jobSpan struct {
	span    trace.Span
	trace   schemas.Trace
	key     string // in byJob
	attempt int
	seq     int32 // -1 without a sequence
	seals   int
	tokens  bool // the first one has come
	prefill phaseSpan
	decode  phaseSpan
}

// phaseSpan sums up the operations of one phase: a span per operation would be
// one per few tokens.
type phaseSpan struct {
	from, to time.Time
	ops      int
	tokens   int
	busy     time.Duration
	rows     int // most turns in one operation
	err      string
}

func (p *phaseSpan) add(from, to time.Time, tokens, rows int, errText string) {
	if p.ops == 0 {
		p.from = from
	}
	p.to, p.err = to, errText
	p.ops++
	p.tokens += tokens
	p.busy += to.Sub(from)
	p.rows = max(p.rows, rows)
}

// NewExecutor returns nil for a nil tracer; the hooks of a nil Executor do nothing.
func NewExecutor(t *Tracer) *Executor {
	if t == nil {
		return nil
	}
	e := &Executor{t: t, byJob: map[string]string{}, seqs: map[int32]*jobSpan{}}
	e.jobs = newLedger(func(j *jobSpan) { e.end(j, keyOutcome.String("forgotten")) })
	return e
}

func jobKey(job string, stage schemas.Stage) string { return job + "/" + string(stage) }

// In begins the span of a job and makes the actor carry it.
func (e *Executor) In(m *schemas.Msg) {
	switch {
	case e == nil:
	case m.Kind == schemas.KindJob && sampled(m.Trace.Parent):
		e.job(m)
	case m.Kind == schemas.KindCancel && e.active.Load() > 0:
		e.cancel(m.Cancel)
	}
}

func (e *Executor) job(m *schemas.Msg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, key := m.Job, jobKey(m.Job.Ready.Job, m.Job.Stage)
	if parent, ok := e.byJob[key]; ok {
		old, _ := e.jobs.get(parent)
		if old.attempt >= j.Attempt {
			return // the actor drops it too
		}
		e.remove(old, keyOutcome.String("superseded"))
	}
	now := time.Now()
	span := e.t.process(m, now, keyJob.String(j.Ready.Job), keyConversation.String(j.Ready.Session), keyModel.String(j.Ready.Pool),
		keyStage.String(string(j.Stage)), keyAttempt.Int(j.Attempt), keyPrompt.Int(j.Ready.Prompt.N),
		keyUncached.Int(j.Ready.Prompt.N-j.Ready.Prompt.TailFrom))
	if !span.IsRecording() {
		return
	}
	s := &jobSpan{span: span, trace: traceOf(span.SpanContext()), key: key, attempt: j.Attempt, seq: -1}
	m.Trace = s.trace
	e.jobs.add(s.trace.Parent, s, now)
	e.byJob[key] = s.trace.Parent
	e.active.Store(int64(e.jobs.len()))
}

// cancel ends the span of a job that has no sequence yet: nothing is sent for it.
func (e *Executor) cancel(c *schemas.Cancel) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, stage := range [...]schemas.Stage{schemas.StagePrefill, schemas.StageDecode} {
		s, ok := e.jobs.get(e.byJob[jobKey(c.Job, stage)])
		if !ok || s.attempt > c.Attempt {
			continue
		}
		s.span.AddEvent("cancel")
		if s.seq < 0 {
			e.remove(s, keyOutcome.String(schemas.CodeCancelled))
		}
	}
}

// Out makes the spans of what a job sends, and ends it.
func (e *Executor) Out(_, out *schemas.Msg) {
	if e == nil || !sampled(out.Trace.Parent) {
		return
	}
	switch out.Kind {
	case schemas.KindJob:
		j := out.Job
		e.t.send(out, time.Now(), keyJob.String(j.Ready.Job), keyStage.String(string(j.Stage)), keyAttempt.Int(j.Attempt))
	case schemas.KindResult:
		about := ofResult(out.Result)
		parent := out.Trace.Parent
		e.t.send(out, time.Now(), append(about[:len(about):len(about)], keyJob.String(out.Result.Job))...)
		e.finish(parent, about...)
	case schemas.KindDone:
		d := out.Done
		about := []attribute.KeyValue{keyOutcome.String(string(d.Outcome)), keyFound.Int(d.Cached), keyTokens.Int(d.Computed), keyBusyNS.Int64(d.BusyNS)}
		if d.Code != "" {
			about = append(about, keyErrorType.String(d.Code))
		}
		e.finish(out.Trace.Parent, about...)
	default:
		// Frames, checkpoints and heartbeats belong to no span of their own.
	}
}

func (e *Executor) finish(parent string, attrs ...attribute.KeyValue) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.jobs.get(parent); ok {
		e.remove(s, attrs...)
	}
}

// remove ends a job's span and forgets it.
func (e *Executor) remove(s *jobSpan, attrs ...attribute.KeyValue) {
	e.jobs.take(s.trace.Parent)
	e.end(s, attrs...)
}

func (e *Executor) end(s *jobSpan, attrs ...attribute.KeyValue) {
	if e.byJob[s.key] == s.trace.Parent {
		delete(e.byJob, s.key)
	}
	if e.seqs[s.seq] == s {
		delete(e.seqs, s.seq)
	}
	e.active.Store(int64(e.jobs.len()))
	e.flush(s, "prefill", &s.prefill)
	e.flush(s, "decode", &s.decode)
	for _, a := range attrs {
		if a.Key == keyErrorType {
			failed(s.span, a.Value.AsString())
		}
	}
	if s.seals > sealSpans {
		attrs = append(attrs, attribute.Int("weir.seals", s.seals))
	}
	s.span.SetAttributes(attrs...)
	s.span.End()
}

// flush makes the span of a phase that has ended.
func (e *Executor) flush(s *jobSpan, name string, p *phaseSpan) {
	if p.ops == 0 {
		return
	}
	e.t.child(s.trace, name, p.from, p.to, p.err, keyOps.Int(p.ops), keyTokens.Int(p.tokens), keyBusyNS.Int64(p.busy.Nanoseconds()), keyShared.Int(p.rows))
	*p = phaseSpan{}
}

// Op sees every operation with its completion.
func (e *Executor) Op(op *schemas.Op, start time.Time, done *schemas.OpDone) {
	if e == nil || e.active.Load() == 0 {
		return
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case op.Decode != nil:
		e.decoded(op.Decode, start, now, done)
	case op.Drop != nil:
		delete(e.seqs, op.Drop.Seq)
	case op.Open != nil:
		e.opened(op, start, now, done)
	case op.Prefill != nil:
		e.prefilled(op.Prefill, start, now, done)
	case op.Seal != nil:
		e.sealed(op, start, now, done)
	case op.Tokens != nil:
		e.asked(op, "ask for tokens", start, now, done)
	case op.Delivered != nil:
		n := 0
		if done.Delivered != nil {
			n = len(done.Delivered.Tokens)
		}
		e.asked(op, "ask for delivered tokens", start, now, done, keyDelivered.Int(n))
	case op.Bring != nil:
		e.asked(op, "bring blocks in", start, now, done)
	}
}

func (e *Executor) prefilled(op *schemas.PrefillOp, start, now time.Time, done *schemas.OpDone) {
	for i, seq := range op.Seqs {
		s := e.seqs[seq]
		if s == nil {
			continue
		}
		n, why := 0, errorOf(done)
		if done.Prefill != nil && i < len(done.Prefill.Rows) {
			n = done.Prefill.Rows[i].Computed
			if why == "" {
				why = done.Prefill.Rows[i].Err
			}
		}
		s.prefill.add(start, now, n, 1, why)
	}
}

func (e *Executor) asked(op *schemas.Op, name string, start, now time.Time, done *schemas.OpDone, attrs ...attribute.KeyValue) {
	if s, ok := e.jobs.get(op.Trace.Parent); ok {
		e.t.child(s.trace, name, start, now, errorOf(done), attrs...)
	}
}

func (e *Executor) opened(op *schemas.Op, start, now time.Time, done *schemas.OpDone) {
	delete(e.seqs, op.Open.Seq) // whoever had it before is gone
	s, ok := e.jobs.get(op.Trace.Parent)
	if !ok {
		return
	}
	var attrs []attribute.KeyValue
	if d := done.Open; d != nil {
		attrs = append(attrs, keyFound.Int(d.Cached), keyMissing.Int(d.Missing))
		if d.NeedHead {
			attrs = append(attrs, keyOutcome.String("head needed"))
		} else {
			s.seq = op.Open.Seq
			e.seqs[s.seq] = s
		}
	}
	e.t.child(s.trace, "open", start, now, errorOf(done), attrs...)
}

func (e *Executor) sealed(op *schemas.Op, start, now time.Time, done *schemas.OpDone) {
	s := e.seqs[op.Seal.Seq]
	if s == nil {
		return
	}
	e.flush(s, "prefill", &s.prefill)
	if s.seals++; s.seals > sealSpans {
		return
	}
	var attrs []attribute.KeyValue
	if d := done.Seal; d != nil {
		attrs = append(attrs, keySealed.Int(d.Sealed), keySkipped.Int(d.Skipped))
	}
	e.t.child(s.trace, "seal", start, now, errorOf(done), attrs...)
}

func (e *Executor) decoded(op *schemas.DecodeOp, start, now time.Time, done *schemas.OpDone) {
	for i, seq := range op.Seqs {
		s := e.seqs[seq]
		if s == nil {
			continue
		}
		e.flush(s, "prefill", &s.prefill)
		n, errText := 0, errorOf(done)
		if done.Decode != nil && i < len(done.Decode.Rows) {
			r := &done.Decode.Rows[i]
			n = len(r.Tokens)
			if r.Err != "" {
				errText = errorOf(&schemas.OpDone{Err: r.Err, Code: r.Code})
			}
		}
		s.decode.add(start, now, n, len(op.Seqs), errText)
		if n > 0 && !s.tokens {
			s.tokens = true
			s.span.AddEvent("first_token", trace.WithTimestamp(now))
		}
	}
}
