package compose

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// The traces of the turns over NATS and over HTTP, and the caller's span in both,
// which all spans stand below.
const (
	traceNATS  = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceHTTP  = "80e1afed08e019fc1110464cfa66635c"
	callerSpan = "00f067aa0ba902b7"
)

// sampled is the traceparent of a caller who samples.
func sampled(trace string) string { return "00-" + trace + "-" + callerSpan + "-01" }

// bounded leaves time to remove everything before the test binary is ended.
func bounded(t *testing.T) context.Context {
	t.Helper()
	end, ok := t.Deadline()
	if !ok {
		end = time.Now().Add(time.Hour)
	}
	ctx, cancel := context.WithDeadline(t.Context(), end.Add(-time.Minute))
	t.Cleanup(cancel)
	return ctx
}

// engine starts the container engine and makes the images, or skips with the reason.
func engine(ctx context.Context, t *testing.T) (*Engine, []string) {
	t.Helper()
	if os.Getenv("WEIR_COMPOSE") == "" {
		t.Skip("WEIR_COMPOSE is not set; `make compose-test` sets it")
	}
	bin := stack.Build(t)
	e, err := StartEngine(ctx)
	if errors.Is(err, ErrNoEngine) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	images, err := e.Images(ctx, "local", bin)
	if ctx.Err() != nil {
		t.Skipf("the time was over before the images were made: %v", err)
	}
	if errors.Is(err, ErrNoImages) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e, images
}

// up starts a stack and removes it at the test's end; what it leaves fails the test.
func up(ctx context.Context, t *testing.T, e *Engine, env []string, profiles ...string) (*Project, *Bus) {
	t.Helper()
	p, err := e.NewProject(projectName(), env, profiles...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 45*time.Second)
		defer cancel()
		if t.Failed() {
			t.Log(p.Logs(ctx))
		}
		if err := p.Down(ctx); err != nil {
			t.Error(err)
		}
	})
	if err = p.Up(ctx); err != nil {
		t.Fatal(err)
	}
	addr, err := p.Address(ctx, "nats", "4222")
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBus("nats://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return p, b
}

// executors waits until all executors have their roles, and returns their ids.
func executors(ctx context.Context, t *testing.T, p *Project, b *Bus) map[schemas.Role][]string {
	t.Helper()
	want, out := map[string]schemas.Role{}, map[schemas.Role][]string{}
	for service, role := range map[string]schemas.Role{"prefill": schemas.RolePrefill, "decode": schemas.RoleDecode} {
		ids, err := p.Containers(ctx, service)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range ids {
			want[Executor(c)] = role
			out[role] = append(out[role], Executor(c))
		}
	}
	if err := b.WaitRoles(ctx, want); err != nil {
		t.Fatal(err)
	}
	return out
}

// long is a turn whose prompt is not in the caches of other sessions' turns with
// another first word, and is long enough to be prefilled apart.
func long(first string, tokens int64) *schemas.Turn {
	zero := 0.0
	text := first + strings.Repeat(" the water rises and the weir holds it back", 60)
	turn := &schemas.Turn{Weir: schemas.TurnMeta{IgnoreEOS: true}}
	turn.Messages = []json.RawMessage{json.RawMessage(`{"role":"user","content":"` + text + `"}`)}
	turn.MaxTokens, turn.Temperature = &tokens, &zero
	return turn
}

// collect publishes a turn and returns its result and the tokens that were
// streamed; each, when not nil, sees every event.
func collect(ctx context.Context, t *testing.T, b *Bus, req turns.Request, each func(*turns.Event) error) *schemas.Result {
	t.Helper()
	s, err := b.Publish(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var streamed schemas.Tokens
	r, err := turns.Collect(ctx, s, func(e *turns.Event) error {
		if e.First != len(streamed) {
			return fmt.Errorf("a piece begins at token %d, %d were read", e.First, len(streamed))
		}
		streamed = append(streamed, e.Tokens...)
		if each == nil {
			return nil
		}
		return each(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Failure != nil {
		t.Fatalf("turn of session %s failed: %+v", req.Session, *r.Failure)
	}
	if d := cmp.Diff(r.Tokens, streamed); d != "" {
		t.Errorf("streamed tokens are not the result's (-result +streamed):\n%s", d)
	}
	return r
}

// TestStack: a turn crosses containers, over NATS and over HTTP, with spans of every
// service in one trace; an executor's container that is killed in mid-stream
// changes nothing of the answer; and `down -v` leaves nothing.
func TestStack(t *testing.T) {
	ctx := bounded(t)
	e, env := engine(ctx, t)
	host, err := e.BridgeAddress(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := NewSink(host)
	if err != nil {
		t.Fatalf("the engine's containers cannot reach this machine: %v", err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	env = append(env, "OTEL_EXPORTER_OTLP_ENDPOINT="+sink.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_BSP_SCHEDULE_DELAY=200")
	p, b := up(ctx, t, e, env)
	ids := executors(ctx, t, p, b)

	t.Run("turn over NATS", func(t *testing.T) {
		r := collect(ctx, t, b, turns.Request{
			Session: "nats", Turn: long("one", 16), Trace: schemas.Trace{Parent: sampled(traceNATS)},
		}, nil)
		if r.PrefillOn != ids[schemas.RolePrefill][0] || r.DecodeOn != ids[schemas.RoleDecode][0] {
			t.Errorf("prefill on %q, decode on %q, the containers are %v", r.PrefillOn, r.DecodeOn, ids)
		}
		if len(r.Tokens) != 16 {
			t.Errorf("%d tokens", len(r.Tokens))
		}
	})
	t.Run("chat", func(t *testing.T) { chat(ctx, t, p) })
	t.Run("spans", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		services := []string{"weir-lineage", "weir-router", "weir-executor"}
		spans, err := sink.Wait(ctx, traceNATS, callerSpan, services)
		if err != nil {
			t.Errorf("over NATS: %v\n%+v", err, spans)
		}
		spans, err = sink.Wait(ctx, traceHTTP, callerSpan, append(services, "weir-gateway"))
		if err != nil {
			t.Errorf("over HTTP: %v\n%+v", err, spans)
		}
	})
	t.Run("decode container killed", func(t *testing.T) { killed(ctx, t, p, b, "decode") })
}

// chat asks the gateway as an OpenAI client does.
func chat(ctx context.Context, t *testing.T, p *Project) {
	container, err := p.Container(ctx, "gateway")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitHealthy(ctx, container); err != nil {
		t.Fatal(err)
	}
	addr, err := p.Address(ctx, "gateway", "8080")
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"model":"weir-random-small","stream":true,"stream_options":{"include_usage":true},"max_tokens":24,"temperature":0,
		"messages":[{"role":"user","content":"What is a weir?"}]}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", sampled(traceHTTP))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %s", resp.Status)
	}
	chunks, completion, finish, last := 0, 0, "", ""
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if last = data; data == "[DONE]" {
			break
		}
		var c struct {
			Choices []struct {
				FinishReason string `json:"finish_reason"`
			} `json:"choices"`
			Usage *struct {
				CompletionTokens int `json:"completion_tokens"`
			} `json:"usage"`
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		chunks++
		if len(c.Choices) > 0 && c.Choices[0].FinishReason != "" {
			finish = c.Choices[0].FinishReason
		}
		if c.Usage != nil {
			completion = c.Usage.CompletionTokens
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if last != "[DONE]" || finish == "" || completion < 1 || chunks < 3 {
		t.Errorf("%d chunks, finish %q, %d tokens, last line %q", chunks, finish, completion, last)
	}
}

// killed kills an executor's container while it answers, starts it again, and
// compares the answer with one that nothing disturbed.
func killed(ctx context.Context, t *testing.T, p *Project, b *Bus, service string) {
	const tokens = 600
	began := time.Now()
	calm := collect(ctx, t, b, turns.Request{Session: "calm-" + service, Turn: long("two", tokens)}, nil)
	container, err := p.Container(ctx, service)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d tokens took %s", tokens, time.Since(began).Round(time.Millisecond))
	var hit, next time.Time
	r := collect(ctx, t, b, turns.Request{Session: "hit-" + service, Turn: long("two", tokens)}, func(e *turns.Event) error {
		if !hit.IsZero() && next.IsZero() && e.Attempt > 1 {
			next = time.Now()
		}
		if !hit.IsZero() || e.First < 32 {
			return nil
		}
		hit = time.Now()
		if _, err := p.engine.Docker(ctx, "kill", container); err != nil {
			return err
		}
		_, err := p.engine.Docker(ctx, "start", container)
		return err
	})
	if hit.IsZero() || r.Attempt < 2 {
		t.Errorf("the kill did not hit the turn: attempt %d", r.Attempt)
	}
	t.Logf("%s from the kill to the next attempt's first token, the container's start included", next.Sub(hit).Round(time.Millisecond))
	if len(r.Tokens) != tokens {
		t.Errorf("%d tokens, want %d", len(r.Tokens), tokens)
	}
	if d := cmp.Diff(calm.Tokens, r.Tokens); d != "" {
		t.Errorf("the answer changed (-calm +hit):\n%s", d)
	}
}
