package telemetry

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weir-dev/weir/schemas"
)

// Lineage traces the lineage service. In and Out belong to the goroutine of its
// actor; Op may be called from any.
type Lineage struct {
	t    *Tracer
	open *ledger[trace.Span] // by the span's own traceparent
}

// NewLineage returns nil for a nil tracer; the hooks of a nil Lineage do nothing.
func NewLineage(t *Tracer) *Lineage {
	if t == nil {
		return nil
	}
	return &Lineage{t: t, open: newLedger(func(s trace.Span) {
		s.SetAttributes(keyOutcome.String("no output")) // published twice, or its session is gone
		s.End()
	})}
}

// In begins the span of a turn and makes the actor carry it. Lineage is also where
// a turn that came from NATS without a trace may be sampled.
func (l *Lineage) In(m *schemas.Msg) {
	switch {
	case l == nil:
	case m.Kind == schemas.KindTurn:
		if m.Trace.Parent != "" && !sampled(m.Trace.Parent) || l.t.tooOld(m) {
			return
		}
		now := time.Now()
		span := l.t.process(m, now)
		if !span.IsRecording() {
			return
		}
		l.describe(span, m)
		m.Trace = traceOf(span.SpanContext())
		l.open.add(m.Trace.Parent, span, now)
	case m.Kind == schemas.KindResult && sampled(m.Trace.Parent) && !l.t.tooOld(m):
		span := l.t.process(m, time.Now(), keyJob.String(m.Result.Job))
		span.SetAttributes(ofResult(m.Result)...)
		span.End()
	}
}

func (l *Lineage) describe(span trace.Span, m *schemas.Msg) {
	if s, err := schemas.ParseSubject(m.Subject); err == nil {
		span.SetAttributes(keyTenant.String(s.Get("tenant")), keyConversation.String(s.Get("session")))
	}
	if t := m.Turn.Weir.Turn; t != "" {
		span.SetAttributes(keyTurn.String(t))
	}
}

// Out ends a turn's span when its READY message, its refusal or its rejection leaves.
func (l *Lineage) Out(_, out *schemas.Msg) {
	if l == nil || !sampled(out.Trace.Parent) {
		return
	}
	switch {
	case out.Kind == schemas.KindReady && !out.Ready.Cancel:
		r := out.Ready
		if span, ok := l.open.take(out.Trace.Parent); ok {
			span.SetAttributes(keyJob.String(r.Job), keyBranch.String(r.Branch), keyModel.String(r.Pool),
				keyPrompt.Int(r.Prompt.N), keyUncached.Int(r.Prompt.N-r.Prompt.TailFrom), keyOutcome.String("ready"))
			span.End()
		}
		l.t.send(out, time.Now(), keyJob.String(r.Job))
	case out.Kind == schemas.KindResult:
		r := out.Result
		if span, ok := l.open.take(out.Trace.Parent); ok {
			span.SetAttributes(keyJob.String(r.Job), keyOutcome.String("refused"))
			if r.Failure != nil {
				failed(span, r.Failure.Code)
			}
			span.End()
		}
		l.t.send(out, time.Now(), keyJob.String(r.Job))
	case out.Kind == schemas.KindFrame && out.Frame.Reject != nil:
		if span, ok := l.open.take(out.Trace.Parent); ok {
			failed(span, out.Frame.Reject.Failure.Code)
			span.End()
		}
	}
}

// Op makes the span of a rendered prompt, a fetched body or a look for an earlier result.
func (l *Lineage) Op(op *schemas.Op, start time.Time, done *schemas.OpDone) {
	if l == nil || !sampled(op.Trace.Parent) {
		return
	}
	end := time.Now()
	switch {
	case op.Render != nil:
		n, errText := 0, errorOf(done)
		if done.Render != nil {
			n = len(done.Render.Reply.Tokens)
			if f := done.Render.Reply.Failure; f != nil {
				errText = f.Code
			}
		}
		l.t.child(op.Trace, "render", start, end, errText, keyModel.String(op.Render.Model), keyTokens.Int(n))
	case op.Fetch != nil:
		l.t.child(op.Trace, "fetch body", start, end, errorOf(done), keyBodySize.Int64(op.Fetch.Ref.Bytes))
	case op.Lookup != nil:
		l.t.child(op.Trace, "look for an earlier result", start, end, errorOf(done))
	}
}

// errorOf is the code of a failed operation; its text stays in the log.
func errorOf(d *schemas.OpDone) string {
	switch {
	case d.Err == "":
		return ""
	case d.Code != "":
		return d.Code
	}
	return "failed"
}
