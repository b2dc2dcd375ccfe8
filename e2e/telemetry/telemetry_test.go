package telemetry

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/telemetry"
	"github.com/weir-dev/weir/services/turns"
)

const (
	callerTrace = "0af7651916cd43dd8448eb211c80319c"
	callerSpan  = "b7ad6b7169203331"
	secret      = "xylophone" // a word of the prompt, which no span may hold
)

// link is a span and the one that it must be a child of.
type link struct {
	service, name, parent string
	kind                  tracepb.Span_SpanKind
}

// want is the whole trace of a turn with a prefill stage: 18 spans of six parts.
var want = []link{
	{"weir-gateway", "chat null", callerSpan, tracepb.Span_SPAN_KIND_SERVER},
	{"weir-gateway", "send agent.{tenant}.{session}.turn", "chat null", tracepb.Span_SPAN_KIND_PRODUCER},
	{"weir-lineage", "process agent.{tenant}.{session}.turn", "send agent.{tenant}.{session}.turn", tracepb.Span_SPAN_KIND_CONSUMER},
	{"weir-lineage", "render", "process agent.{tenant}.{session}.turn", tracepb.Span_SPAN_KIND_INTERNAL},
	{"weir-lineage", "send ready.{cell}.{tenant}.{session}.{turn}", "process agent.{tenant}.{session}.turn", tracepb.Span_SPAN_KIND_PRODUCER},
	{"weir-router", "process ready.{cell}.{tenant}.{session}.{turn}", "send ready.{cell}.{tenant}.{session}.{turn}", tracepb.Span_SPAN_KIND_CONSUMER},
	{"weir-router", "send prefill.{cell}.{executor}.{job}", "process ready.{cell}.{tenant}.{session}.{turn}", tracepb.Span_SPAN_KIND_PRODUCER},
	{"weir-executor", "process prefill.{cell}.{executor}.{job}", "send prefill.{cell}.{executor}.{job}", tracepb.Span_SPAN_KIND_CONSUMER},
	{"weir-executor", "open", "process prefill.{cell}.{executor}.{job}", tracepb.Span_SPAN_KIND_INTERNAL},
	{"weir-executor", "prefill", "process prefill.{cell}.{executor}.{job}", tracepb.Span_SPAN_KIND_INTERNAL},
	{"weir-executor", "seal", "process prefill.{cell}.{executor}.{job}", tracepb.Span_SPAN_KIND_INTERNAL},
	{"weir-executor", "send decode.{cell}.{executor}.{job}", "process prefill.{cell}.{executor}.{job}", tracepb.Span_SPAN_KIND_PRODUCER},
	{"weir-executor", "process decode.{cell}.{executor}.{job}", "send decode.{cell}.{executor}.{job}", tracepb.Span_SPAN_KIND_CONSUMER},
	{"weir-executor", "open", "process decode.{cell}.{executor}.{job}", tracepb.Span_SPAN_KIND_INTERNAL},
	{"weir-executor", "decode", "process decode.{cell}.{executor}.{job}", tracepb.Span_SPAN_KIND_INTERNAL},
	{"weir-executor", "seal", "process decode.{cell}.{executor}.{job}", tracepb.Span_SPAN_KIND_INTERNAL},
	{"weir-executor", "send result.{tenant}.{session}.{turn}", "process decode.{cell}.{executor}.{job}", tracepb.Span_SPAN_KIND_PRODUCER},
	{"weir-lineage", "process result.{tenant}.{session}.{turn}", "send result.{tenant}.{session}.{turn}", tracepb.Span_SPAN_KIND_CONSUMER},
}

func TestOneTurnIsOneTrace(t *testing.T) {
	sink, err := NewSink()
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Stop()
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	s := stack.Start(t, stack.Options{
		Args: []string{"--engine", "null", "--prefill", "1", "--decode", "1", "--ctx", "4096", "--kv-mem", "32MiB", "--direct-max", "-1", "--trace-file", file},
		Env:  append(sink.Env(), "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test"),
	})
	before := scrape(t, s.Ready.HTTP)
	// Without a traceparent 99 of 100 turns are not sampled; a caller that says no
	// is never sampled.
	ask(t, s.Ready.HTTP, "00-11111111111111111111111111111111-2222222222222222-00", "s-not")
	ask(t, s.Ready.HTTP, "00-"+callerTrace+"-"+callerSpan+"-01", "s-http")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	spans, err := sink.Wait(ctx, "the whole trace", func(all []Span) bool { return len(missing(all)) == 0 })
	if err != nil {
		t.Fatalf("%v\nmissing %+v, there are\n%s", err, missing(spans), names(spans))
	}
	checkTrace(t, spans, s)
	checkFile(t, ctx, file, spans)
	busTurn(t, ctx, s, sink)
	command(t, ctx, s, sink)
	checkCounts(t, before, s)
}

// command: weir turn is the root of its trace, and always sampled.
func command(t *testing.T, ctx context.Context, s *stack.Stack, sink *Sink) {
	t.Helper()
	cmd := exec.CommandContext(ctx, stack.Build(t), "turn", "Hello", "--nats", s.Ready.NATS, "--session", "s-command", "--max-tokens", "12", "--ignore-eos", "-o", "json")
	cmd.Env = append(os.Environ(), sink.Env()...)
	cmd.Env = append(cmd.Env, "OTEL_TRACES_SAMPLER=always_off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var root Span
	spans, err := sink.Wait(ctx, "the trace of weir turn", func(all []Span) bool {
		i := slices.IndexFunc(all, func(sp Span) bool { return sp.Service == "weir-turn" && sp.Name == "weir turn" })
		if i < 0 {
			return false
		}
		root = all[i]
		return slices.ContainsFunc(all, func(sp Span) bool { return sp.Trace == root.Trace && sp.Name == "decode" })
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, names(spans))
	}
	need(t, root, "gen_ai.usage.output_tokens", "12")
	if root.Parent != "" || root.Kind != tracepb.Span_SPAN_KIND_CLIENT {
		t.Errorf("the command's span: %+v", root)
	}
}

// missing lists what of want is not there.
func missing(spans []Span) []link {
	byID := map[string]Span{callerSpan: {Name: callerSpan}}
	for _, sp := range spans {
		byID[sp.ID] = sp
	}
	left := slices.Clone(want)
	for _, sp := range spans {
		if i := slices.Index(left, link{sp.Service, sp.Name, byID[sp.Parent].Name, sp.Kind}); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	return left
}

// checkTrace compares the trace of the HTTP request with want.
func checkTrace(t *testing.T, spans []Span, s *stack.Stack) {
	t.Helper()
	for _, sp := range spans {
		if sp.Trace != callerTrace {
			t.Errorf("span %q of %s belongs to trace %s", sp.Name, sp.Service, sp.Trace)
		}
	}
	for _, sp := range spans {
		if strings.HasPrefix(sp.Name, "process ") && !slices.Contains(sp.Links, sp.Parent) {
			t.Errorf("span %q has no link to the span that sent its message", sp.Name)
		}
		for k, v := range sp.Attrs {
			if strings.Contains(v, secret) {
				t.Errorf("span %q holds text of the prompt in %s", sp.Name, k)
			}
		}
	}
	// Generated blocks may be sealed once more while the turn decodes.
	if n := len(spans) - len(want); n < 0 || n > 1 {
		t.Errorf("%d spans, want %d:\n%s", len(spans), len(want), names(spans))
	}
	pids := map[string]int64{}
	for _, sp := range spans {
		pids[sp.Name] = sp.PID
		switch sp.Name {
		case "chat null":
			need(t, sp, "gen_ai.operation.name", "chat")
			need(t, sp, "gen_ai.provider.name", "weir")
			need(t, sp, "gen_ai.request.model", "null")
			need(t, sp, "gen_ai.conversation.id", "s-http")
			need(t, sp, "gen_ai.usage.output_tokens", "12")
			need(t, sp, "http.response.status_code", "200")
		case "process prefill.{cell}.{executor}.{job}":
			need(t, sp, "messaging.system", "nats")
			need(t, sp, "messaging.operation.type", "process")
			need(t, sp, "weir.outcome", "prefilled")
		case "send decode.{cell}.{executor}.{job}":
			need(t, sp, "messaging.operation.type", "send")
			need(t, sp, "messaging.destination.template", "decode.{cell}.{executor}.{job}")
			if !strings.HasSuffix(sp.Attrs["messaging.message.id"], ":decode:1") {
				t.Errorf("message id %q", sp.Attrs["messaging.message.id"])
			}
		case "process decode.{cell}.{executor}.{job}":
			need(t, sp, "gen_ai.usage.output_tokens", "12")
			if !slices.Contains(sp.Events, "first_token") {
				t.Error("the decode span has no event first_token")
			}
		case "decode":
			need(t, sp, "weir.tokens", "12")
		}
	}
	for name, id := range map[string]string{"process prefill.{cell}.{executor}.{job}": "p0", "process decode.{cell}.{executor}.{job}": "d0", "render": "control"} {
		if int(pids[name]) != s.PID(id) {
			t.Errorf("span %q is of process %d, want %d (%s)", name, pids[name], s.PID(id), id)
		}
	}
}

// checkFile: the trace file has the same spans.
func checkFile(t *testing.T, ctx context.Context, file string, spans []Span) {
	t.Helper()
	want := map[string]string{}
	for _, sp := range spans {
		want[sp.ID] = sp.Name
	}
	tick := time.NewTicker(20 * time.Millisecond) // nothing tells when a file has grown
	defer tick.Stop()
	var got []telemetry.Span
	for got = readFile(t, file); len(got) < len(want); got = readFile(t, file) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the trace file has %d spans, want %d", len(got), len(want))
		}
	}
	for _, l := range got {
		if want[l.SpanID] != l.Name || l.TraceID != callerTrace || l.StartNS > l.EndNS || l.PID == 0 || !strings.HasPrefix(l.Service, "weir-") {
			t.Errorf("line %+v", l)
		}
	}
}

func readFile(t *testing.T, file string) (out []telemetry.Span) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var l telemetry.Span
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatalf("line %q: %v", sc.Text(), err)
		}
		out = append(out, l)
	}
	return out
}

// busTurn: the trace context of a message on NATS is continued, and a refused turn
// has spans too.
func busTurn(t *testing.T, ctx context.Context, s *stack.Stack, sink *Sink) {
	t.Helper()
	const tid = "4bf92f3577b34da6a3ce929d0e0e4736"
	one, body := int64(1), json.RawMessage(`{"role":"user","content":"hello"}`)
	st, err := s.NewClient(t).Publish(ctx, turns.Request{
		Session: "s-bus", Trace: schemas.Trace{Parent: "00-" + tid + "-00f067aa0ba902b7-01", State: "vendor=1"},
		Turn: &schemas.Turn{Body: schemas.Body{Model: "nosuch", Messages: []json.RawMessage{body}, MaxTokens: &one}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	res, err := turns.Collect(ctx, st, nil)
	if err != nil || res.Failure == nil || res.Failure.Code != schemas.CodeModel {
		t.Fatalf("result %+v, %v", res, err)
	}
	spans, err := sink.Wait(ctx, "the refused turn", func(all []Span) bool {
		return slices.ContainsFunc(all, func(sp Span) bool { return sp.Trace == tid && strings.HasPrefix(sp.Name, "process result") })
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, sp := range spans {
		if sp.Trace != tid || !strings.HasPrefix(sp.Name, "process agent") {
			continue
		}
		need(t, sp, "error.type", schemas.CodeModel)
		if sp.Parent != "00f067aa0ba902b7" {
			t.Errorf("the turn's span is a child of %q", sp.Parent)
		}
	}
}

// checkCounts: the metrics of one scrape count four turns, executors included.
func checkCounts(t *testing.T, before map[string]float64, s *stack.Stack) {
	t.Helper()
	moved := map[string]float64{
		"weir_turns_total{code=,status=ok}":                                 3,
		"weir_turns_total{code=model_not_found,status=failed}":              1,
		"weir_turn_tokens_total{kind=completion}":                           36,
		"weir_turn_duration_seconds_count{}":                                4,
		"weir_turn_time_to_first_token_seconds_count{}":                     3,
		"weir_lineage_turns_total{how=admitted}":                            3,
		"weir_lineage_turns_total{how=refused}":                             1,
		"weir_router_events_total{event=placed}":                            3,
		"weir_gateway_requests_total{endpoint=chat.completions,status=200}": 2,
		"weir_executor_tokens_total{executor=d0,kind=decode}":               36,
	}
	deadline := time.Now().Add(time.Minute) // executors report every 2 s
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		after := scrape(t, s.Ready.HTTP)
		var wrong []string
		for k, d := range moved {
			if got := after[k] - before[k]; got != d {
				wrong = append(wrong, fmt.Sprintf("%s moved by %g, want %g", k, got, d))
			}
		}
		if len(wrong) == 0 {
			for _, k := range []string{
				"weir_nats_connected{service=router}", "weir_executor_role{executor=p0,role=prefill}", "weir_executor_decode_credit{executor=d0}",
				"weir_bus_messages_in_total{service=lineage}", "weir_kv_extents_total{change=stored,node=n0}", "process_cpu_seconds_total{}", "go_goroutines{}",
			} {
				if after[k] <= 0 {
					t.Errorf("%s is %g", k, after[k])
				}
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(strings.Join(wrong, "\n"))
		}
		<-tick.C
	}
}

func need(t *testing.T, sp Span, key, value string) {
	t.Helper()
	if sp.Attrs[key] != value {
		t.Errorf("span %q has %s %q, want %q", sp.Name, key, sp.Attrs[key], value)
	}
}

func names(spans []Span) string {
	var b strings.Builder
	for _, sp := range spans {
		fmt.Fprintf(&b, "%s: %s\n", sp.Service, sp.Name)
	}
	return b.String()
}

func ask(t *testing.T, base, traceparent, session string) {
	t.Helper()
	body := fmt.Sprintf(`{"max_tokens":12,"ignore_eos":true,"messages":[{"role":"user","content":%q}]}`, strings.Repeat(secret+" "+session+" ", 60))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("traceparent", traceparent)
	req.Header.Set("X-Weir-Session", session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end by Decode
	var out struct {
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusOK || out.Usage.CompletionTokens != 12 {
		t.Fatalf("status %d, %+v, %v", resp.StatusCode, out, err)
	}
}

// scrape reads /metrics into values by "name{label=value,…}".
func scrape(t *testing.T, base string) map[string]float64 {
	t.Helper()
	resp, err := http.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end below
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("/metrics: %v", err)
	}
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			var ls []string
			for _, l := range m.Label {
				ls = append(ls, l.GetName()+"="+l.GetValue())
			}
			key := "{" + strings.Join(ls, ",") + "}"
			switch {
			case m.Counter != nil:
				out[name+key] = m.Counter.GetValue()
			case m.Gauge != nil:
				out[name+key] = m.Gauge.GetValue()
			case m.Histogram != nil:
				out[name+"_count"+key] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return out
}
