package telemetry

import (
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-dev/weir/schemas"
)

// Answered says how a request ended, as far as it came.
type Answered struct {
	Status  int    // HTTP
	Code    string // of an error
	Model   string
	Session string
	Stream  bool
	First   time.Time // when the first token was there
	Result  *schemas.Result
}

// Request begins the span of an HTTP request for a turn, below in when that is
// set; without it the sampler decides. endpoint is chat.completions or completions. It returns the context that goes on with
// the turn, and what ends the span. A nil Tracer passes in on.
func (t *Tracer) Request(endpoint string, in schemas.Trace) (schemas.Trace, func(Answered)) {
	if t == nil || in.Parent != "" && !sampled(in.Parent) {
		return in, func(Answered) {}
	}
	operation := "chat"
	if endpoint == "completions" {
		operation = "text_completion"
	}
	span := t.start(in, operation, trace.SpanKindServer, time.Now())
	out := traceOf(span.SpanContext())
	if !span.IsRecording() {
		if in.Parent != "" {
			out = in
		}
		return out, func(Answered) {}
	}
	return out, func(a Answered) {
		span.SetName(operation + " " + a.Model)
		span.SetAttributes(keyGenOp.String(operation), keyProvider.String(providerWeir), keyModel.String(a.Model), keyConversation.String(a.Session),
			keyHTTPMethod.String("POST"), keyHTTPRoute.String("/v1/"+strings.ReplaceAll(endpoint, ".", "/")), keyHTTPStatus.Int(a.Status), attribute.Bool("gen_ai.request.stream", a.Stream))
		if !a.First.IsZero() {
			span.AddEvent("first_token", trace.WithTimestamp(a.First))
		}
		if r := a.Result; r != nil {
			span.SetAttributes(ofResult(r)...)
			span.SetAttributes(keyJob.String(r.Job), keyTurn.String(r.Turn))
		}
		if a.Code != "" {
			failed(span, a.Code)
		}
		span.End()
	}
}

// Command begins the span of a command that asks for one turn, below in when that
// is set. It returns the context that goes on with the turn and what ends the span.
// A nil Tracer passes in on.
func (t *Tracer) Command(name string, in schemas.Trace) (schemas.Trace, func(*schemas.Result, error)) {
	if t == nil || in.Parent != "" && !sampled(in.Parent) {
		return in, func(*schemas.Result, error) {}
	}
	span := t.start(in, name, trace.SpanKindClient, time.Now(), trace.WithAttributes(keyGenOp.String("chat"), keyProvider.String(providerWeir)))
	return traceOf(span.SpanContext()), func(r *schemas.Result, err error) {
		switch {
		case r != nil:
			span.SetAttributes(ofResult(r)...)
			span.SetAttributes(keyJob.String(r.Job), keyTurn.String(r.Turn), keyConversation.String(r.Session))
			if r.Failure != nil {
				failed(span, r.Failure.Code)
			}
		case err != nil:
			failed(span, "failed")
		}
		span.End()
	}
}

// Answer begins the span of answering a request on NATS below in, if that is
// sampled, and returns what ends it with the code of a failure. A nil Tracer makes
// none.
func (t *Tracer) Answer(in schemas.Trace, subject string) func(code string) {
	if t == nil || !sampled(in.Parent) {
		return func(string) {}
	}
	span := t.process(&schemas.Msg{Subject: subject, Trace: in}, time.Now())
	return func(code string) {
		if code != "" {
			failed(span, code)
		}
		span.End()
	}
}

// Publish begins the span of publishing a turn, below in when that is set. It
// returns the context for the message's header and what ends the span once the
// publish is acknowledged. A nil Tracer passes in on.
func (t *Tracer) Publish(in schemas.Trace, subject, id string, size int) (schemas.Trace, func(error)) {
	if t == nil || in.Parent != "" && !sampled(in.Parent) {
		return in, func(error) {}
	}
	tpl := templateOf(subject)
	span := t.start(in, "send "+tpl, trace.SpanKindProducer, time.Now())
	out := traceOf(span.SpanContext())
	if !span.IsRecording() {
		if in.Parent != "" {
			out = in
		}
		return out, func(error) {}
	}
	span.SetAttributes(keySystem.String(systemNATS), keyOpType.String("send"), keyOpName.String("send"), keyDestination.String(subject),
		keyTemplate.String(tpl), keyMessageID.String(id), keyBodySize.Int(size))
	return out, func(err error) {
		if err != nil {
			failed(span, "publish")
		}
		span.End()
	}
}
