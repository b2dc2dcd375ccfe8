package telemetry

import (
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-dev/weir/schemas"
)

// world is one Telemetry whose spans stay in memory.
type world struct {
	tel *Telemetry
	rec *tracetest.SpanRecorder
}

func newWorld(t *testing.T, env map[string]string) *world {
	t.Helper()
	for k, v := range env {
		t.Setenv(k, v) // the SDK's sampler reads the real environment
	}
	w := &world{rec: tracetest.NewSpanRecorder()}
	var err error
	w.tel, err = New(t.Context(), Config{Instance: "i", Version: "1", Processor: w.rec, Getenv: func(k string) string { return env[k] }})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) span(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	for _, s := range w.rec.Ended() {
		if s.Name() == name {
			return s
		}
	}
	t.Fatalf("no span %q among %q", name, w.names())
	return nil
}

func (w *world) names() (out []string) {
	for _, s := range w.rec.Ended() {
		out = append(out, s.Name())
	}
	return out
}

func attr(s sdktrace.ReadOnlySpan, key string) string {
	for _, kv := range s.Attributes() {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}

func turnMsg(parent string) *schemas.Msg {
	return &schemas.Msg{
		Kind: schemas.KindTurn, Subject: schemas.AgentSubject("default", "s", schemas.EventTurn), Seq: 7, At: schemas.Time(time.Now().UnixNano()),
		Trace: schemas.Trace{Parent: parent}, Turn: &schemas.Turn{Weir: schemas.TurnMeta{Turn: "t"}},
	}
}

func readyMsg(trace schemas.Trace) *schemas.Msg {
	return &schemas.Msg{
		Kind: schemas.KindReady, Subject: schemas.ReadySubject("c0", "default", "s", "t"), Trace: trace,
		Ready: &schemas.Ready{Tenant: "default", Session: "s", Turn: "t", Job: "j", Pool: "m", Prompt: schemas.Prompt{N: 100}},
	}
}

func jobMsg(stage schemas.Stage, attempt int, trace schemas.Trace) *schemas.Msg {
	return &schemas.Msg{
		Kind: schemas.KindJob, Subject: schemas.JobSubject(stage, "c0", "e0", "j"), Trace: trace,
		Job: &schemas.Job{Stage: stage, Attempt: attempt, Ready: readyMsg(trace).Ready},
	}
}

func TestLineageSpans(t *testing.T) {
	w := newWorld(t, nil)
	l := NewLineage(w.tel.Tracer("lineage"))
	in := turnMsg(parentOf("01"))
	l.In(in)
	if in.Trace.Parent == parentOf("01") {
		t.Fatal("the actor carries the caller's span, not lineage's")
	}
	l.Op(&schemas.Op{Trace: in.Trace, Render: &schemas.RenderOp{Model: "m"}}, time.Now(), &schemas.OpDone{Render: &schemas.RenderDone{}})
	out := readyMsg(in.Trace)
	l.Out(in, out)
	if out.Trace == in.Trace {
		t.Error("the message carries no span of its own")
	}
	p := w.span(t, "process agent.{tenant}.{session}.turn")
	if p.Parent().SpanID().String() != sid || traceOf(p.SpanContext()) != in.Trace || len(p.Links()) != 1 || attr(p, "weir.outcome") != "ready" {
		t.Errorf("parent %s, links %v, attributes %v", p.Parent().SpanID(), p.Links(), p.Attributes())
	}
	if s := w.span(t, "send ready.{cell}.{tenant}.{session}.{turn}"); s.Parent().SpanID() != p.SpanContext().SpanID() || traceOf(s.SpanContext()) != out.Trace {
		t.Error("the send is no child of lineage's span, or the message does not carry it")
	}
	if s := w.span(t, "render"); s.Parent().SpanID() != p.SpanContext().SpanID() {
		t.Error("render is no child of lineage's span")
	}
}

func TestLineageSampling(t *testing.T) {
	for name, tt := range map[string]struct {
		sampler, parent string
		want            int
	}{
		"the caller said no":       {"", parentOf("00"), 0},
		"no again, all sampled":    {"always_on", parentOf("00"), 0},
		"the caller said yes":      {"", parentOf("01"), 1},
		"all, without a caller":    {"always_on", "", 1},
		"none":                     {"always_off", "", 0},
		"none, though told to":     {"always_off", parentOf("01"), 0},
		"parent, without a parent": {"parentbased_always_off", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{}
			if tt.sampler != "" {
				env["OTEL_TRACES_SAMPLER"] = tt.sampler
			}
			w := newWorld(t, env)
			l := NewLineage(w.tel.Tracer("lineage"))
			in := turnMsg(tt.parent)
			l.In(in)
			if tt.want == 0 && in.Trace.Parent != tt.parent {
				t.Errorf("trace became %q", in.Trace.Parent)
			}
			if got := len(w.rec.Started()); got != tt.want {
				t.Errorf("%d spans", got)
			}
		})
	}
	w := newWorld(t, nil)
	l := NewLineage(w.tel.Tracer("lineage"))
	const n = 20_000
	for range n {
		l.In(turnMsg(""))
	}
	// 200 are expected; ten standard deviations are 141.
	if got := len(w.rec.Started()); got < 60 || got > 340 {
		t.Errorf("%d of %d turns are sampled by default", got, n)
	}
}

func TestLineageIgnoresWhatAnEarlierLifeTraced(t *testing.T) {
	w := newWorld(t, nil)
	l := NewLineage(w.tel.Tracer("lineage"))
	in := turnMsg(parentOf("01"))
	in.At -= schemas.Time(2 * replayed)
	l.In(in)
	if len(w.rec.Started()) != 0 {
		t.Errorf("spans %q", w.names())
	}
}

func TestLineageRefusal(t *testing.T) {
	w := newWorld(t, nil)
	l := NewLineage(w.tel.Tracer("lineage"))
	in := turnMsg(parentOf("01"))
	l.In(in)
	l.Out(in, &schemas.Msg{
		Kind: schemas.KindResult, Subject: schemas.ResultSubject("default", "s", "t"), Trace: in.Trace,
		Result: &schemas.Result{Job: "j", Status: schemas.StatusFailed, Failure: &schemas.Failure{Code: schemas.CodeModel, Message: "secret text"}},
	})
	p := w.span(t, "process agent.{tenant}.{session}.turn")
	if attr(p, "error.type") != schemas.CodeModel || p.Status().Description != schemas.CodeModel {
		t.Errorf("status %+v, attributes %v", p.Status(), p.Attributes())
	}
}

func TestRouterSpans(t *testing.T) {
	w := newWorld(t, nil)
	r := NewRouter(w.tel.Tracer("router"))
	in := readyMsg(schemas.Trace{Parent: parentOf("01")})
	r.In(in)
	own := in.Trace
	again := readyMsg(schemas.Trace{Parent: parentOf("01")})
	r.In(again)
	if again.Trace != own {
		t.Error("a READY message that came twice began a second span")
	}
	r.Out(in, jobMsg(schemas.StagePrefill, 1, own))
	r.In(&schemas.Msg{Kind: schemas.KindDone, Trace: own, Done: &schemas.Done{Job: "j", Attempt: 1, Stage: schemas.StagePrefill, Outcome: schemas.OutcomePrefilled}})
	r.Out(in, jobMsg(schemas.StageDecode, 1, own))
	r.In(&schemas.Msg{Kind: schemas.KindResult, Trace: own, Result: &schemas.Result{Job: "j", Status: schemas.StatusOK}})
	want := []string{
		"process ready.{cell}.{tenant}.{session}.{turn}", "send prefill.{cell}.{executor}.{job}", "wait again", "send decode.{cell}.{executor}.{job}",
	}
	if got := w.names(); !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}
	if s := w.span(t, want[2]); traceOf(s.SpanContext()).Parent[:35] != own.Parent[:35] || attr(s, "weir.outcome") != "placed" {
		t.Errorf("the second wait: %v", s.Attributes())
	}
	if r.turns.len() != 0 {
		t.Errorf("%d turns are kept after the result", r.turns.len())
	}
	r.In(readyMsg(schemas.Trace{Parent: parentOf("00")}))
	r.In(readyMsg(schemas.Trace{}))
	if r.turns.len() != 0 {
		t.Error("an unsampled turn is kept")
	}
}

func TestDisabled(t *testing.T) {
	for _, env := range []map[string]string{{}, {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}} {
		tel, err := New(t.Context(), Config{Getenv: func(k string) string { return env[k] }})
		if err != nil || tel.Enabled() || tel.Tracer("x") != nil {
			t.Errorf("%v: enabled %v, %v", env, tel.Enabled(), err)
		}
	}
	var l *Lineage
	var r *Router
	var e *Executor
	var tr *Tracer
	m := turnMsg(parentOf("01"))
	l.In(m)
	l.Out(m, m)
	l.Op(&schemas.Op{}, time.Now(), &schemas.OpDone{})
	r.In(m)
	r.Out(m, m)
	e.In(m)
	e.Out(m, m)
	e.Op(&schemas.Op{}, time.Now(), &schemas.OpDone{})
	got, end := tr.Request("chat.completions", m.Trace)
	end(Answered{})
	if got != m.Trace {
		t.Errorf("a nil tracer changed the trace to %q", got.Parent)
	}
	got, sent := tr.Publish(m.Trace, m.Subject, "", 0)
	sent(nil)
	if got != m.Trace {
		t.Errorf("a nil tracer changed the trace to %q", got.Parent)
	}
}

func TestBadEnvironment(t *testing.T) {
	for k, v := range map[string]string{"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"} {
		env := map[string]string{k: v, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
		if _, err := New(t.Context(), Config{Getenv: func(k string) string { return env[k] }}); err == nil {
			t.Errorf("%s=%s is taken", k, v)
		}
	}
	if _, err := New(t.Context(), Config{TraceFile: t.TempDir() + "/no/such/folder", Getenv: func(string) string { return "" }}); err == nil {
		t.Error("a trace file that cannot be made is no error")
	}
}

func TestCommandAndAnswerSpans(t *testing.T) {
	rec := tracetest.NewSpanRecorder()
	tel, err := New(t.Context(), Config{Processor: rec, Always: true, Getenv: func(k string) string {
		return map[string]string{"OTEL_TRACES_SAMPLER": "always_off"}[k]
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{tel: tel, rec: rec}
	tr := tel.Tracer("turn")
	out, end := tr.Command("weir turn", schemas.Trace{})
	tr.Answer(out, "weir.tokenize.m")(schemas.CodeInvalid)
	tr.Answer(schemas.Trace{}, "weir.tokenize.m")("")
	end(&schemas.Result{Failure: &schemas.Failure{Code: schemas.CodeBusy}}, nil)
	root, answer := w.span(t, "weir turn"), w.span(t, "process weir.tokenize.{model}")
	if root.Parent().IsValid() || attr(root, "error.type") != schemas.CodeBusy || answer.Parent().SpanID() != root.SpanContext().SpanID() || attr(answer, "error.type") != schemas.CodeInvalid {
		t.Errorf("%v, %v", root.Attributes(), answer.Attributes())
	}
	if len(rec.Ended()) != 2 {
		t.Errorf("spans %q", w.names())
	}
	var none *Tracer
	none.Answer(out, "x")("")
	if got, end := none.Command("x", out); got != out {
		t.Error("a nil tracer changed the trace")
	} else {
		end(nil, nil)
	}
}

func TestCallerSpans(t *testing.T) {
	w := newWorld(t, map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_always_off"})
	tr := w.tel.Tracer("gateway")
	if out, end := tr.Request("chat.completions", schemas.Trace{}); sampled(out.Parent) || len(out.Parent) != parentLen {
		t.Errorf("an unsampled root must tell the others so, it sends %q", out.Parent)
	} else {
		end(Answered{})
	}
	first := time.Now()
	out, end := tr.Request("completions", schemas.Trace{Parent: parentOf("01")})
	hdr, sent := tr.Publish(out, "agent.default.s.turn", "id", 10)
	sent(nil)
	end(Answered{Status: 504, Code: "deadline_exceeded", Model: "m", Session: "s", First: first, Result: &schemas.Result{Usage: schemas.Usage{Completion: 3}}})
	req, pub := w.span(t, "text_completion m"), w.span(t, "send agent.{tenant}.{session}.turn")
	if traceOf(pub.SpanContext()) != hdr || pub.Parent().SpanID() != req.SpanContext().SpanID() || req.Parent().SpanID().String() != sid {
		t.Error("request, publish and message do not form a chain")
	}
	if attr(req, "gen_ai.usage.output_tokens") != "3" || attr(req, "error.type") != "deadline_exceeded" || len(req.Events()) != 1 {
		t.Errorf("attributes %v, events %v", req.Attributes(), req.Events())
	}
}
