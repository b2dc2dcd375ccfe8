package telemetry

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weir-dev/weir/schemas"
)

// Router traces a router. Its methods belong to the goroutine of the actor.
type Router struct {
	t     *Tracer
	turns *ledger[*routed] // by job
}

// routed is one sampled turn in the router's hands.
type routed struct {
	trace schemas.Trace // of the span of its READY message
	wait  trace.Span    // open while the turn waits for an executor
}

// NewRouter returns nil for a nil tracer; the hooks of a nil Router do nothing.
func NewRouter(t *Tracer) *Router {
	if t == nil {
		return nil
	}
	return &Router{t: t, turns: newLedger(func(r *routed) { r.end("forgotten") })}
}

func (r *routed) end(outcome string) {
	if r.wait != nil {
		r.wait.SetAttributes(keyOutcome.String(outcome))
		r.wait.End()
		r.wait = nil
	}
}

// In begins the wait of a turn for an executor: at its READY message, and again
// when a stage ended without a successor.
func (r *Router) In(m *schemas.Msg) {
	if r == nil || !sampled(m.Trace.Parent) {
		return
	}
	switch m.Kind {
	case schemas.KindReady:
		r.ready(m)
	case schemas.KindDone:
		d := m.Done
		t, ok := r.turns.get(d.Job)
		if !ok || t.wait != nil || d.Outcome == schemas.OutcomeDecoded || d.PassedTo != "" {
			return
		}
		t.wait = r.t.start(t.trace, "wait again", trace.SpanKindInternal, time.Now(), trace.WithAttributes(
			keyJob.String(d.Job), keyStage.String(string(d.Stage)), keyAttempt.Int(d.Attempt), keyExecutor.String(d.Executor)))
		t.wait.AddEvent("stage ended: " + string(d.Outcome))
	case schemas.KindResult:
		r.gone(m.Result)
	}
}

func (r *Router) ready(m *schemas.Msg) {
	if m.Ready.Cancel {
		return
	}
	job := m.Ready.Job
	if t, ok := r.turns.get(job); ok { // delivered again
		m.Trace = t.trace
		return
	}
	now := time.Now()
	span := r.t.process(m, now, keyJob.String(job), keyConversation.String(m.Ready.Session), keyModel.String(m.Ready.Pool))
	if !span.IsRecording() {
		return
	}
	m.Trace = traceOf(span.SpanContext())
	r.turns.add(job, &routed{trace: m.Trace, wait: span}, now)
}

func (r *Router) gone(res *schemas.Result) {
	if t, ok := r.turns.take(res.Job); ok {
		t.end(string(res.Status))
	}
}

// Out ends the wait when a job or a failure leaves.
func (r *Router) Out(_, out *schemas.Msg) {
	if r == nil || !sampled(out.Trace.Parent) {
		return
	}
	switch out.Kind {
	case schemas.KindJob:
		j := out.Job
		executor := ""
		if s, err := schemas.ParseSubject(out.Subject); err == nil {
			executor = s.Get("executor")
		}
		about := keyExecutor.String(executor)
		if t, ok := r.turns.get(j.Ready.Job); ok {
			if t.wait != nil {
				t.wait.SetAttributes(about, keyStage.String(string(j.Stage)), keyAttempt.Int(j.Attempt))
			}
			t.end("placed")
		}
		r.t.send(out, time.Now(), about, keyJob.String(j.Ready.Job), keyStage.String(string(j.Stage)), keyAttempt.Int(j.Attempt))
	case schemas.KindResult:
		res := out.Result
		if t, ok := r.turns.get(res.Job); ok {
			if t.wait != nil && res.Failure != nil {
				failed(t.wait, res.Failure.Code)
			}
			t.end("failed")
		}
		r.t.send(out, time.Now(), keyJob.String(res.Job), keyOutcome.String(string(res.Status)))
	default:
		// The other messages belong to no span of their own.
	}
}
