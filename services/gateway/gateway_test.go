package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

func chatBody(content, more string) string {
	return fmt.Sprintf(`{"model":"tiny","messages":[{"role":"user","content":%q}]%s}`, content, more)
}

func TestChat(t *testing.T) {
	k := newFake(t, Options{Fingerprint: "fp_1"})
	k.scripts["hi"] = hello
	a := k.post("/v1/chat/completions", chatBody("hi", `,"user":"u","metadata":{"a":"b"},"temperature":0.5`), headerSession, "s 1", headerTurn, "t1", headerBranch, "b1")
	m := a.object(t)
	if a.status != 200 || m["object"] != "chat.completion" || m["id"] != "chatcmpl-t1" || m["model"] != "tiny" || m["system_fingerprint"] != "fp_1" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, c := range []struct {
		want any
		path []any
	}{
		{"assistant", []any{"choices", 0, "message", "role"}},
		{"Héllo \"you\"\n", []any{"choices", 0, "message", "content"}},
		{"stop", []any{"choices", 0, "finish_reason"}},
		{10.0, []any{"usage", "prompt_tokens"}},
		{5.0, []any{"usage", "completion_tokens"}},
		{15.0, []any{"usage", "total_tokens"}},
		{7.0, []any{"usage", "prompt_tokens_details", "cached_tokens"}},
		{"e0", []any{"weir", "prefill_on"}},
		{"e1", []any{"weir", "decode_on"}},
		{"t1", []any{"weir", "turn"}},
	} {
		if got := at(m, c.path...); got != c.want {
			t.Errorf("%v is %v, want %v", c.path, got, c.want)
		}
	}
	if known, _ := at(m, "weir", "known").(string); len(known) != 32 {
		t.Errorf("weir.known is %q", known)
	}
	if id := a.header.Get("X-Request-Id"); id == "" || a.header.Get("Request-Id") != id {
		t.Errorf("the request has no id: %v", a.header)
	}
	ref := within(t, k.refs)
	if ref.Session != schemas.CleanID("s 1") || a.header.Get(headerSession) != ref.Session || a.header.Get(headerTurn) != "t1" {
		t.Errorf("session %q, headers %v", ref.Session, a.header)
	}
	sent := within(t, k.turns)
	if sent.Weir.Branch != "b1" || sent.User != nil || sent.Metadata != nil || sent.Stream != nil || *sent.Temperature != 0.5 {
		t.Errorf("the turn is %+v", sent)
	}
}

func TestChatStream(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["hi"] = hello
	a := k.post("/v1/chat/completions", chatBody("hi", `,"stream":true,"stream_options":{"include_usage":true}`), headerTurn, "t1")
	if ct := a.header.Get("Content-Type"); a.status != 200 || !strings.HasPrefix(ct, "text/event-stream") {
		t.Fatalf("%d %s %s", a.status, ct, a.body)
	}
	chunks, done := a.events(t)
	if !done || len(chunks) < 4 {
		t.Fatalf("done %v, %d chunks: %s", done, len(chunks), a.body)
	}
	text := ""
	for i, c := range chunks {
		if c["object"] != "chat.completion.chunk" || c["id"] != "chatcmpl-t1" || c["model"] != "tiny" {
			t.Errorf("chunk %d is %v", i, c)
		}
		if u, has := c["usage"]; !has || (u != nil) != (i == len(chunks)-1) {
			t.Errorf("chunk %d has usage %v", i, u)
		}
		s, _ := at(c, "choices", 0, "delta", "content").(string)
		text += s
	}
	last := chunks[len(chunks)-2]
	switch {
	case at(chunks[0], "choices", 0, "delta", "role") != "assistant":
		t.Errorf("the first chunk is %v", chunks[0])
	case text != "Héllo \"you\"\n":
		t.Errorf("text %q", text)
	case at(last, "choices", 0, "finish_reason") != "stop" || at(last, "weir", "decode_on") != "e1":
		t.Errorf("the last chunk is %v", last)
	case at(chunks[len(chunks)-1], "usage", "prompt_tokens_details", "cached_tokens") != 7.0:
		t.Errorf("the usage chunk is %v", chunks[len(chunks)-1])
	}
}

func TestCompletions(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["once"] = hello
	for _, prompt := range []string{`"once"`, `["once"]`} {
		a := k.post("/v1/completions", `{"model":"tiny","prompt":`+prompt+`}`)
		m := a.object(t)
		if a.status != 200 || m["object"] != "text_completion" || at(m, "choices", 0, "text") != "Héllo \"you\"\n" {
			t.Errorf("prompt %s: %d %s", prompt, a.status, a.body)
		}
	}
	a := k.post("/v1/completions", `{"model":"tiny","prompt":"once","stream":true}`)
	text := ""
	chunks, done := a.events(t)
	for _, c := range chunks {
		s, _ := at(c, "choices", 0, "text").(string)
		text += s
		if _, has := c["usage"]; has {
			t.Errorf("a chunk has usage that was not asked for: %v", c)
		}
	}
	if !done || text != "Héllo \"you\"\n" {
		t.Errorf("text %q, done %v", text, done)
	}
}

func TestLogprobs(t *testing.T) {
	k := newFake(t, Options{})
	lp := json.RawMessage(`{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"b","logprob":-1,"bytes":[98]}]}`)
	k.scripts["lp"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
		k.publish(schemas.OutSubject(r.Tenant, r.Session, r.Turn), &schemas.Frame{Header: schemas.H(), Attempt: 1, Tokens: schemas.Tokens{5}, Text: "a", Logprobs: []json.RawMessage{lp}})
		k.publish(schemas.ResultSubject(r.Tenant, r.Session, r.Turn), &schemas.Result{
			Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, Job: "j", Attempt: 1, Status: schemas.StatusOK,
			Text: "aa", Tokens: schemas.Tokens{5, 5}, Finish: "length", Logprobs: []json.RawMessage{lp, lp},
		})
	}
	m := k.post("/v1/chat/completions", chatBody("lp", `,"logprobs":true,"top_logprobs":1`)).object(t)
	if at(m, "choices", 0, "logprobs", "content", 1, "top_logprobs", 0, "token") != "b" {
		t.Errorf("chat: %v", m)
	}
	m = k.post("/v1/completions", `{"prompt":"lp","logprobs":1}`).object(t)
	if at(m, "choices", 0, "logprobs", "text_offset", 1) != 1.0 || at(m, "choices", 0, "logprobs", "top_logprobs", 0, "b") != -1.0 {
		t.Errorf("completions: %v", m)
	}
	chunks, _ := k.post("/v1/chat/completions", chatBody("lp", `,"logprobs":true,"stream":true`)).events(t)
	n := 0
	for _, c := range chunks {
		l, _ := at(c, "choices", 0, "logprobs", "content").([]any)
		n += len(l)
	}
	if n != 2 {
		t.Errorf("the stream has logprobs of %d tokens, want 2", n)
	}
}

// TestBadRequests: each is refused at once, with OpenAI's shape and the field.
func TestBadRequests(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["long"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
		k.failed(r, schemas.Failure{Code: schemas.CodeTooLong, Message: "too long", Param: "messages"})
	}
	for code := range failures {
		k.scripts[code] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
			k.failed(r, schemas.Failure{Code: code, Message: "because"})
		}
	}
	for _, c := range []struct {
		name, path, body string
		status           int
		code, param      string
	}{
		{"empty", "", ``, 400, "invalid_request", ""},
		{"no json", "", `{"model":`, 400, "invalid_request", ""},
		{"two values", "", `{"messages":[{}]} {}`, 400, "invalid_request", ""},
		{"array", "", `[]`, 400, "invalid_request", ""},
		{"utf8", "", "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", 400, "invalid_request", ""},
		{"unknown", "", chatBody("x", `,"foo":1`), 400, "unknown_parameter", "foo"},
		{"unknown in weir", "", chatBody("x", `,"weir":{"bar":1}`), 400, "unknown_parameter", "bar"},
		{"type", "", chatBody("x", `,"temperature":"hot"`), 400, "invalid_request", "temperature"},
		{"type of messages", "", `{"messages":"hi"}`, 400, "invalid_request", "messages"},
		{"type of model", "", `{"model":7,"messages":[{}]}`, 400, "invalid_request", "model"},
		{"range", "", chatBody("x", `,"temperature":9`), 400, "invalid_request", "temperature"},
		{"max_tokens", "", chatBody("x", `,"max_tokens":0`), 400, "invalid_request", "max_tokens"},
		{"huge number", "", chatBody("x", `,"max_tokens":1e400`), 400, "invalid_request", "max_tokens"},
		{"fraction", "", chatBody("x", `,"max_tokens":1.5`), 400, "invalid_request", "max_tokens"},
		{"stop", "", chatBody("x", `,"stop":[1]`), 400, "invalid_request", "stop"},
		{"empty stop", "", chatBody("x", `,"stop":[""]`), 400, "invalid_request", "stop"},
		{"no messages", "", `{"messages":[]}`, 400, "invalid_request", "messages"},
		{"prompt", "", chatBody("x", `,"prompt":"y"`), 400, "unknown_parameter", "prompt"},
		{"stream_options", "", chatBody("x", `,"stream_options":{}`), 400, "invalid_request", "stream_options"},
		{"web search", "", chatBody("x", `,"web_search_options":{}`), 400, "invalid_request", "web_search_options"},
		{"cache key", "", chatBody("x", `,"prompt_cache_key":7`), 400, "invalid_request", "prompt_cache_key"},
		{"bad turn id", "", chatBody("x", `,"weir":{"turn":"a.b"}`), 400, "invalid_request", "weir.turn"},
		{"body_ref", "", chatBody("x", `,"body_ref":{"digest":"x","bytes":1}`), 400, "invalid_request", "body_ref"},
		{"no prompt", "/v1/completions", `{"model":"tiny"}`, 400, "invalid_request", "prompt"},
		{"two prompts", "/v1/completions", `{"prompt":["a","b"]}`, 400, "invalid_request", "prompt"},
		{"odd prompt", "/v1/completions", `{"prompt":[1,"b"]}`, 400, "invalid_request", "prompt"},
		{"context", "", chatBody("long", ""), 400, "context_length_exceeded", "messages"},
		{"context, stream", "", chatBody("long", `,"stream":true`), 400, "context_length_exceeded", "messages"},
		{"model", "", chatBody("model_not_found", ""), 404, "model_not_found", ""},
		{"branch", "", chatBody("unknown_branch", ""), 404, "unknown_branch", ""},
		{"conflict", "", chatBody("turn_conflict", ""), 422, "turn_conflict", ""},
		{"poison", "", chatBody("poison_turn", ""), 422, "poison_turn", ""},
		{"busy", "", chatBody("overloaded", ""), 429, "overloaded", ""},
		{"deadline", "", chatBody("deadline_exceeded", ""), 504, "deadline_exceeded", ""},
		{"engine", "", chatBody("engine_error", ""), 500, "engine_error", ""},
		{"path", "/v1/nothing", ``, 404, "unknown_url", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := c.path
			if path == "" {
				path = "/v1/chat/completions"
			}
			a := k.post(path, c.body)
			m := a.object(t)
			param, code := at(m, "error", "param"), at(m, "error", "code")
			if c.param == "" {
				if param != nil {
					t.Errorf("param is %v, want null", param)
				}
			} else if param != c.param {
				t.Errorf("param is %v, want %s", param, c.param)
			}
			if a.status != c.status || code != c.code || at(m, "error", "message") == "" || at(m, "error", "type") == "" {
				t.Errorf("status %d, body %s", a.status, a.body)
			}
			if wait := a.header.Get("Retry-After"); (wait != "") != (a.status == 429 || a.status == 503) {
				t.Errorf("status %d has Retry-After %q", a.status, wait)
			}
		})
	}
	if a := k.do(http.MethodGet, "/v1/chat/completions", nil); a.status != 405 || a.header.Get("Allow") != "POST" {
		t.Errorf("GET gives %d, Allow %q", a.status, a.header.Get("Allow"))
	}
}

func TestTooLargeBody(t *testing.T) {
	k := newFake(t, Options{})
	big := bytes.Repeat([]byte("a"), 20<<20)
	text := `{"messages":[{"role":"user","content":"` + string(big) + `"}]}` // larger than a turn without images may be
	for name, body := range map[string]func() answer{
		"length": func() answer {
			return k.do(http.MethodPost, "/v1/chat/completions", bytes.NewReader(bytes.Repeat(big, 4)))
		},
		"text": func() answer { return k.do(http.MethodPost, "/v1/chat/completions", strings.NewReader(text)) },
		"chunked": func() answer {
			return k.do(http.MethodPost, "/v1/chat/completions", struct{ *bytes.Buffer }{bytes.NewBuffer(bytes.Clone(big))})
		},
	} {
		a := body()
		if a.status != 413 || at(a.object(t), "error", "code") != "request_too_large" {
			t.Errorf("%s: %d %.200s", name, a.status, a.body)
		}
	}
	if n := k.g.bodies.Load(); n != 0 {
		t.Errorf("%d bytes of bodies stay charged", n)
	}
}

// TestClientGoes: the turn of a client that went away is cancelled.
func TestClientGoes(t *testing.T) {
	for _, more := range []string{"", `,"stream":true`} {
		k := newFake(t, Options{})
		k.scripts["slow"] = func(k *fake, r turns.Ref, _ *schemas.Turn) { k.frame(r, 0, 0, "a", 1) }
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url+"/v1/chat/completions", strings.NewReader(chatBody("slow", more)))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			within(t, k.refs)
			cancel()
		}()
		if res, err := http.DefaultClient.Do(req); err == nil {
			_, _ = bufio.NewReader(res.Body).ReadString('\x00')
			_ = res.Body.Close()
		}
		if e := within(t, k.events); e.Turn == "" {
			t.Errorf("the cancel is %+v", e)
		}
		cancel()
	}
}

func TestErrorInStream(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["dies"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
		k.frame(r, 0, 0, "a", 1)
		time.AfterFunc(50*time.Millisecond, func() { k.failed(r, schemas.Failure{Code: schemas.CodeEngine, Message: "it broke"}) })
	}
	chunks, done := k.post("/v1/chat/completions", chatBody("dies", `,"stream":true`)).events(t)
	if done || len(chunks) != 3 || at(chunks[2], "error", "message") != "it broke" {
		t.Errorf("done %v, chunks %v", done, chunks)
	}
}

func TestKeepAlive(t *testing.T) {
	k := newFake(t, Options{KeepAlive: 20 * time.Millisecond})
	k.scripts["late"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
		time.AfterFunc(100*time.Millisecond, func() { hello(k, r, nil) })
	}
	a := k.post("/v1/chat/completions", chatBody("late", `,"stream":true`))
	if n := strings.Count(a.body, ": keep-alive\n\n"); n < 2 || n > 6 {
		t.Errorf("%d comments in %q", n, a.body)
	}
	if _, done := a.events(t); !done {
		t.Errorf("the stream has no end: %q", a.body)
	}
}

func TestDeadline(t *testing.T) {
	k := newFake(t, Options{})
	at0 := time.Now().Add(-deadlineGrace + 200*time.Millisecond).UnixNano()
	a := k.post("/v1/chat/completions", chatBody("never", fmt.Sprintf(`,"weir":{"deadline_ns":%d}`, at0)))
	if a.status != 503 && a.status != 504 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestTooManyRequests(t *testing.T) {
	k := newFake(t, Options{MaxInFlight: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url+"/v1/chat/completions", strings.NewReader(chatBody("never", "")))
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	go func() {
		defer close(end)
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}()
	within(t, k.refs)
	a := k.post("/v1/chat/completions", chatBody("hi", ""))
	if a.status != 429 || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	for path, body := range map[string]string{
		"/v1/sessions/s/events": `{"kind":"user_wait"}`, "/tokenize": `{"prompt":"a"}`,
		"/v1/messages/count_tokens": `{"messages":[{"role":"user","content":"x"}]}`, "/v1/responses/input_tokens": `{"input":"x"}`,
	} {
		if a := k.post(path, body); a.status != 429 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	cancel()
	<-end
}

func TestModelsAndReadiness(t *testing.T) {
	reg := prometheus.NewRegistry()
	k := newFake(t, Options{Models: []Model{{Name: "tiny", Created: 7}}, Registerer: reg, Metrics: promhttp.HandlerFor(reg, promhttp.HandlerOpts{})})
	if a := k.do(http.MethodGet, "/readyz", nil); a.status != 503 || !strings.Contains(a.body, "heartbeat") {
		t.Errorf("without executors: %d %s", a.status, a.body)
	}
	beat := func(id, pool string, role schemas.Role) {
		k.g.fleet.heard(&schemas.Heartbeat{Header: schemas.H(), Executor: id, Pool: pool, Role: role}, time.Now())
	}
	beat("e0", "tiny", schemas.RolePrefill)
	if a := k.do(http.MethodGet, "/readyz", nil); a.status != 503 || !strings.Contains(a.body, "decodes") {
		t.Errorf("without decode: %d %s", a.status, a.body)
	}
	beat("e1", "tiny", schemas.RoleDecode)
	beat("e2", "org/other", schemas.RoleMixed)
	if a := k.do(http.MethodGet, "/readyz", nil); a.status != 200 {
		t.Errorf("with both: %d %s", a.status, a.body)
	}
	m := k.do(http.MethodGet, "/v1/models", nil).object(t)
	want := []any{"tiny", "org/other"}
	if d := cmp.Diff(want, []any{at(m, "data", 0, "id"), at(m, "data", 1, "id")}); d != "" || at(m, "data", 0, "created") != 7.0 {
		t.Errorf("models %v: %s", m, d)
	}
	if a := k.do(http.MethodGet, "/v1/models/org/other", nil); a.status != 200 || a.object(t)["id"] != "org/other" {
		t.Errorf("one model: %d %s", a.status, a.body)
	}
	if a := k.do(http.MethodGet, "/v1/models/none", nil); a.status != 404 {
		t.Errorf("no model: %d %s", a.status, a.body)
	}
	if a := k.do(http.MethodGet, "/healthz", nil); a.status != 200 {
		t.Errorf("healthz: %d", a.status)
	}
	k.scripts["hi"] = hello
	k.post("/v1/chat/completions", chatBody("hi", ""))
	if a := k.do(http.MethodGet, "/metrics", nil); !strings.Contains(a.body, `weir_gateway_requests_total{endpoint="chat.completions",status="200"} 1`) {
		t.Errorf("metrics: %.2000s", a.body)
	}
}

// TestShutdown: a request in work gets an error, not a broken connection.
func TestShutdown(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["slow"] = func(k *fake, r turns.Ref, _ *schemas.Turn) { k.frame(r, 0, 0, "a", 1) }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- k.g.Serve(l) }()
	k.url = "http://" + l.Addr().String()
	got := make(chan answer, 1)
	go func() { got <- k.post("/v1/chat/completions", chatBody("slow", `,"stream":true`)) }()
	within(t, k.refs)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := k.g.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	a := within(t, got)
	if !strings.Contains(a.body, "shutting down") {
		t.Errorf("the request in work got %d %q", a.status, a.body)
	}
	if err := within(t, served); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestTraceGoesOn(t *testing.T) {
	k := newFake(t, Options{})
	parent := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	seen := make(chan string, 1)
	sub, err := k.nc.SubscribeSync("agent.*.*.turn")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	k.scripts["hi"] = hello
	k.post("/v1/chat/completions", chatBody("hi", ""), "traceparent", parent)
	m, err := sub.NextMsg(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	seen <- m.Header.Get("traceparent")
	if v := m.Header["traceparent"]; len(v) != 1 || v[0] != parent {
		t.Errorf("headers are %v", m.Header)
	}
}

func TestQuote(t *testing.T) {
	for _, s := range []string{"", "a", "\"\\\n\r\t\x00\x1f\x7f", "é漢🙂", "bad \xff\xfe end", "<&>\u2028"} {
		var got string
		if err := json.Unmarshal(quote(nil, s), &got); err != nil || got != strings.ToValidUTF8(s, "\ufffd") && got != strings.ReplaceAll(strings.ReplaceAll(s, "\xff", "\ufffd"), "\xfe", "\ufffd") {
			t.Errorf("%q became %q, %v", s, got, err)
		}
	}
}

// TestSameRequestAgain: a client that repeats a request under one key gets the
// same answer, also as a stream, and other content under that key is refused.
func TestSameRequestAgain(t *testing.T) {
	k := newFake(t, Options{})
	var n atomic.Int32
	k.scripts["hi"] = func(k *fake, r turns.Ref, m *schemas.Turn) {
		if n.Add(1) == 1 {
			hello(k, r, m)
		}
	}
	head := []string{headerIdem, "key/1", headerSession, "s"}
	first := k.post("/v1/chat/completions", chatBody("hi", ""), head...)
	again := k.post("/v1/chat/completions", chatBody("hi", ""), head...)
	if first.status != 200 || again.status != 200 || at(first.object(t), "weir", "known") != at(again.object(t), "weir", "known") {
		t.Errorf("first %s, again %s", first.body, again.body)
	}
	chunks, done := k.post("/v1/chat/completions", chatBody("hi", `,"stream":true`), head...).events(t)
	text := ""
	for _, c := range chunks {
		s, _ := at(c, "choices", 0, "delta", "content").(string)
		text += s
	}
	if !done || text != "Héllo \"you\"\n" {
		t.Errorf("as a stream: done %v, %q", done, text)
	}
	if id := schemas.CleanID("key/1"); first.header.Get(headerTurn) != id {
		t.Errorf("the turn is %q, want %q", first.header.Get(headerTurn), id)
	}
}
