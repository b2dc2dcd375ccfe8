package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-dev/weir/schemas"
)

// parentLen is the length of a traceparent of version 00; later versions may
// append to it.
//
//	00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//	   3                                36               53
const parentLen = 55

// sampled is the fast way out: it looks at the flags of a traceparent.
func sampled(parent string) bool {
	if len(parent) < parentLen {
		return false
	}
	// The lowest bit of a hex digit's value is that of the character's code for
	// 0 to 9, and the opposite of it for a to f.
	c := parent[54]
	return (c&1 == 1) == (c <= '9')
}

// contextOf parses a trace context. A malformed one is invalid, as the standard says.
func contextOf(t schemas.Trace) trace.SpanContext {
	p := t.Parent
	if len(p) < parentLen || p[2] != '-' || p[35] != '-' || p[52] != '-' || p[:2] == "ff" || p[:2] == "00" && len(p) > parentLen {
		return trace.SpanContext{}
	}
	tid, err := trace.TraceIDFromHex(p[3:35])
	if err != nil {
		return trace.SpanContext{}
	}
	sid, err := trace.SpanIDFromHex(p[36:52])
	if err != nil {
		return trace.SpanContext{}
	}
	c := trace.SpanContextConfig{TraceID: tid, SpanID: sid, Remote: true}
	if sampled(p) {
		c.TraceFlags = trace.FlagsSampled
	}
	if ts, err := trace.ParseTraceState(t.State); err == nil {
		c.TraceState = ts
	}
	return trace.NewSpanContext(c)
}

// traceOf is what goes into headers for a span.
func traceOf(sc trace.SpanContext) schemas.Trace {
	if !sc.IsValid() {
		return schemas.Trace{}
	}
	b := make([]byte, 0, parentLen)
	tid, sid := sc.TraceID(), sc.SpanID()
	b = append(b, "00-"...)
	b = append(b, tid.String()...)
	b = append(b, '-')
	b = append(b, sid.String()...)
	if sc.IsSampled() {
		b = append(b, "-01"...)
	} else {
		b = append(b, "-00"...)
	}
	return schemas.Trace{Parent: string(b), State: sc.TraceState().String()}
}

// Tracer makes the spans of one service. A nil Tracer makes none.
type Tracer struct {
	t     trace.Tracer
	began time.Time
}

// replayed is how old a message may be, when the service starts, to get a span
// still. What is older was traced by an earlier life of the service.
const replayed = 30 * time.Second

func (t *Tracer) tooOld(m *schemas.Msg) bool {
	return m.At != 0 && t.began.UnixNano()-int64(m.At) > int64(replayed)
}

// start begins a span below parent, or a root when parent is invalid.
func (t *Tracer) start(parent schemas.Trace, name string, kind trace.SpanKind, at time.Time, opts ...trace.SpanStartOption) trace.Span {
	sc := contextOf(parent)
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), sc)
	opts = append(opts, trace.WithSpanKind(kind), trace.WithTimestamp(at))
	_, span := t.t.Start(ctx, name, opts...)
	return span
}

// process begins the span of work on a message. It is a child of the span that
// sent the message, and has a link to it, as the conventions ask for.
func (t *Tracer) process(m *schemas.Msg, now time.Time, attrs ...attribute.KeyValue) trace.Span {
	tpl := templateOf(m.Subject)
	attrs = append(attrs, keySystem.String(systemNATS), keyOpType.String("process"), keyOpName.String("process"),
		keyDestination.String(m.Subject), keyTemplate.String(tpl))
	if m.Seq > 0 {
		attrs = append(attrs, keyStreamSeq.Int64(int64(m.Seq)))
	}
	opts := []trace.SpanStartOption{trace.WithAttributes(attrs...)}
	if sc := contextOf(m.Trace); sc.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: sc}))
	}
	return t.start(m.Trace, "process "+tpl, trace.SpanKindConsumer, now, opts...)
}

// send makes the span of a publish below the message's trace, and puts its own
// context in the place of it. The span ends at once: the runner sends next.
func (t *Tracer) send(m *schemas.Msg, now time.Time, attrs ...attribute.KeyValue) {
	tpl := templateOf(m.Subject)
	attrs = append(attrs, keySystem.String(systemNATS), keyOpType.String("send"), keyOpName.String("send"),
		keyDestination.String(m.Subject), keyTemplate.String(tpl))
	if m.ID != "" {
		attrs = append(attrs, keyMessageID.String(m.ID))
	}
	span := t.start(m.Trace, "send "+tpl, trace.SpanKindProducer, now, trace.WithAttributes(attrs...))
	m.Trace = traceOf(span.SpanContext())
	span.End()
}

// child makes a span of work that has ended.
func (t *Tracer) child(parent schemas.Trace, name string, from, to time.Time, errText string, attrs ...attribute.KeyValue) {
	span := t.start(parent, name, trace.SpanKindInternal, from, trace.WithAttributes(attrs...))
	if errText != "" {
		span.SetStatus(codes.Error, errText)
	}
	span.End(trace.WithTimestamp(to))
}

// ofResult are the attributes of a turn's end.
func ofResult(r *schemas.Result) []attribute.KeyValue {
	out := []attribute.KeyValue{
		keyOutcome.String(string(r.Status)), keyAttempt.Int(r.Attempt), keyInput.Int(r.Usage.Prompt),
		keyCached.Int(r.Usage.Cached), keyOutput.Int(r.Usage.Completion),
	}
	if r.Model != "" {
		out = append(out, keyModel.String(r.Model))
	}
	if r.Finish != "" {
		out = append(out, keyFinish.StringSlice([]string{r.Finish}))
	}
	if r.Timing.TTFTNS > 0 {
		out = append(out, keyTTFTNS.Int64(r.Timing.TTFTNS))
	}
	return out
}

// failed marks a span with a failure's code. The message stays out: it may quote
// the caller's text.
func failed(span trace.Span, code string) {
	span.SetStatus(codes.Error, code)
	span.SetAttributes(keyErrorType.String(code))
}
