package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/node"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
)

// slow is a stack that decodes for long enough to be interrupted.
func slow(t *testing.T) *stack.Stack {
	t.Helper()
	path, err := stack.ModelFile("small")
	if err != nil {
		t.Fatal(err)
	}
	return stack.Start(t, stack.Options{Args: []string{"--engine", "go", "--model", path, "--kv-mem", "256MiB", "--slots", "2"}})
}

// step runs one step of client.mjs to its end and decodes the line it prints.
func step(t *testing.T, s *stack.Stack, p *Programs, name string, into any) {
	t.Helper()
	if err := p.run(t.Context(), s, into, "client.mjs", s.Ready.HTTP+"/v1", name); err != nil {
		t.Fatal(err)
	}
}

// programs installs the packages.
func programs(t *testing.T) *Programs {
	t.Helper()
	p, err := Node(t.Context())
	if errors.Is(err, node.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// able is a stack whose engine can be made to call a tool.
func able(t *testing.T) *stack.Stack {
	t.Helper()
	if stack.Libraries() == "" {
		t.Skip("the llama.cpp libraries are not installed; make engine installs them")
	}
	return stack.Start(t, Options())
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u usage) sane(t *testing.T, completion int) {
	t.Helper()
	if u.Prompt <= 0 || u.Completion != completion || u.Total != u.Prompt+u.Completion {
		t.Errorf("usage is %+v, want %d completion tokens", u, completion)
	}
}

type completion struct {
	Object  string
	Model   string
	Usage   usage
	Choices []struct {
		Text         string
		Message      struct{ Role, Content string }
		FinishReason string `json:"finish_reason"`
	}
}

// TestOpenAIClient runs the official npm package against the gateway.
func TestOpenAIClient(t *testing.T) {
	dir := programs(t)
	s := slow(t)
	t.Run("whole", func(t *testing.T) { whole(t, s, dir) })
	t.Run("stream", func(t *testing.T) { stream(t, s, dir) })
	t.Run("abort", func(t *testing.T) { abort(t, s, dir) })
	t.Run("errors", func(t *testing.T) { failures(t, s, dir) })
	t.Run("completions", func(t *testing.T) {
		var r completion
		step(t, s, dir, "completions", &r)
		r.Usage.sane(t, 12)
		if r.Object != "text_completion" || len(r.Choices) != 1 || r.Choices[0].Text == "" || r.Choices[0].FinishReason != "length" {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("models", func(t *testing.T) {
		var r struct {
			IDs []string
			One struct{ ID, Object string }
		}
		step(t, s, dir, "models", &r)
		if len(r.IDs) == 0 || r.IDs[0] != s.Ready.Model || r.One.ID != r.IDs[0] || r.One.Object != "model" {
			t.Errorf("got %+v, the stack serves %s", r, s.Ready.Model)
		}
	})
	t.Run("calls", func(t *testing.T) { client(t, dir, "openai") })
}

// client runs one of the four clients on a stack of its own.
func client(t *testing.T, p *Programs, name string) {
	t.Helper()
	waits, loops, err := p.Client(t.Context(), able(t), name)
	if err != nil {
		t.Fatal(err)
	}
	if loops {
		t.Logf("lineage saw %d tool waits", waits)
	}
}

// TestAnthropicClient runs the official npm package against /v1/messages.
func TestAnthropicClient(t *testing.T) { client(t, programs(t), "anthropic") }

// TestOpenAIAgents: the agents package, which knows only a base URL, ends a loop of
// ten tool calls with both APIs that it speaks.
func TestOpenAIAgents(t *testing.T) { client(t, programs(t), "agents") }

// TestLangGraph: so does a graph of LangChain's.
func TestLangGraph(t *testing.T) { client(t, programs(t), "langgraph") }

func whole(t *testing.T, s *stack.Stack, dir *Programs) {
	var r struct{ First, Second completion }
	step(t, s, dir, "whole", &r)
	for _, c := range []completion{r.First, r.Second} {
		c.Usage.sane(t, 24)
		if c.Object != "chat.completion" || len(c.Choices) != 1 || c.Choices[0].Message.Role != "assistant" || c.Choices[0].FinishReason != "length" {
			t.Errorf("got %+v", c)
		}
	}
	if r.First.Choices[0].Message.Content != r.Second.Choices[0].Message.Content {
		t.Error("the same greedy turn gave two answers")
	}
	if got := r.Second.Usage.Details.Cached; r.First.Usage.Details.Cached != 0 || got != (r.Second.Usage.Prompt-1)/64*64 {
		t.Errorf("cached %d, then %d of %d prompt tokens", r.First.Usage.Details.Cached, got, r.Second.Usage.Prompt)
	}
}

func stream(t *testing.T, s *stack.Stack, dir *Programs) {
	var r struct {
		Whole, Text, Role, Finish string
		Chunks                    int
		Usage                     usage
	}
	step(t, s, dir, "stream", &r)
	r.Usage.sane(t, 24)
	if r.Text == "" || r.Text != r.Whole || r.Role != "assistant" || r.Finish != "length" || r.Chunks < 4 {
		t.Errorf("got %+v", r)
	}
}

// held counts the jobs that executors hold.
func held(m map[string]schemas.Heartbeat) int {
	n := 0
	for _, h := range m {
		n += len(h.Held)
	}
	return n
}

// abort: a client that goes away frees the executor.
func abort(t *testing.T, s *stack.Stack, dir *Programs) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hb, err := s.Heartbeats()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hb.Close() }() // ends with the stack
	cmd := dir.command(ctx, s, "client.mjs", s.Ready.HTTP+"/v1", "abort")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var r struct {
		Chunks  int
		Aborted bool
	}
	for sc := bufio.NewScanner(out); sc.Scan(); {
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if r.Chunks != 8 || !r.Aborted {
		t.Errorf("the client says %+v", r)
	}
	began := time.Now()
	var first map[string]schemas.Heartbeat // which may be older than the turn
	err = hb.Wait(ctx, "that nothing is held", func(m map[string]schemas.Heartbeat) bool {
		if first == nil {
			first = maps.Clone(m)
		}
		for id, h := range m {
			if h.Seq < first[id].Seq+2 {
				return false
			}
		}
		return len(m) == 2 && held(m) == 0
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("the executors held the aborted turn for %s", d)
	}
}

// failures: each error has the type and the fields that the client knows.
func failures(t *testing.T, s *stack.Stack, dir *Programs) {
	type failure struct {
		Name, Kind, Code, Param, Type, Message string
		Status                                 int
	}
	var got []failure
	step(t, s, dir, "errors", &got)
	want := map[string]failure{
		"model":       {Kind: "NotFoundError", Status: 404, Code: "model_not_found", Param: "model"},
		"temperature": {Kind: "BadRequestError", Status: 400, Code: "invalid_request", Param: "temperature"},
		"messages":    {Kind: "BadRequestError", Status: 400, Code: "invalid_request", Param: "messages"},
		"type":        {Kind: "BadRequestError", Status: 400, Code: "invalid_request", Param: "max_tokens"},
		"long":        {Kind: "BadRequestError", Status: 400, Code: "context_length_exceeded", Param: "messages"},
		"image":       {Kind: "BadRequestError", Status: 400, Code: "invalid_request", Param: "messages"},
		"unknown":     {Kind: "BadRequestError", Status: 400, Code: "unknown_parameter", Param: "no_such_field"},
		"route":       {Kind: "NotFoundError", Status: 404},
	}
	if len(got) != len(want) {
		t.Errorf("%d errors, want %d", len(got), len(want))
	}
	for _, g := range got {
		t.Logf("%+v", g)
		w := want[g.Name]
		if g.Kind != w.Kind || g.Status != w.Status || w.Code != "" && g.Code != w.Code || w.Param != "" && !strings.HasPrefix(g.Param, w.Param) || g.Message == "" {
			t.Errorf("%s: got %+v, want %+v", g.Name, g, w)
		}
		if g.Type != "invalid_request_error" {
			t.Errorf("%s: type is %q", g.Name, g.Type)
		}
	}
}

// TestNatsCommandLine asks for a turn and lists the services with the nats command.
func TestNatsCommandLine(t *testing.T) {
	if testing.Short() {
		if _, err := exec.LookPath("nats"); err != nil {
			t.Skip("the nats command is not installed, and building it takes minutes")
		}
	}
	bin, err := Nats(t.Context())
	if errors.Is(err, node.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := stack.Start(t, stack.Options{Args: []string{"--engine", "null", "--kv-mem", "64MiB"}})
	nats := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin, append([]string{"--no-context", "--server", s.Ready.NATS}, args...)...)
		cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir(), "NO_COLOR=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("nats %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	out := nats("req", "--raw", "weir.turn", `{"messages":[{"role":"user","content":"Hello"}],"max_tokens":8}`)
	var r schemas.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if r.Status != schemas.StatusOK || r.Usage.Completion == 0 || r.DecodeOn != "d0" {
		t.Errorf("the result is %+v", r)
	}
	if out := nats("micro", "ls"); !strings.Contains(out, "weir-turn") {
		t.Errorf("nats micro ls does not list weir-turn:\n%s", out)
	}
	if out := nats("micro", "info", "weir-turn"); !strings.Contains(out, "weir.turn") {
		t.Errorf("nats micro info does not show the subject:\n%s", out)
	}
	if out := nats("stream", "ls", "--names"); !strings.Contains(out, "AGENT") || !strings.Contains(out, "RESULT") {
		t.Errorf("nats stream ls shows:\n%s", out)
	}
	out = nats("req", "weir.turn", `{"messages":[]}`)
	if !strings.Contains(out, "Nats-Service-Error") {
		t.Errorf("an invalid turn is answered without an error:\n%s", out)
	}
}
