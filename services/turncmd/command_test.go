package turncmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// fake answers turns that are published to a NATS of its own.
type fake struct {
	t   *testing.T
	url string
	nc  *nats.Conn

	mu    sync.Mutex
	turns []*schemas.Turn
	trace string
	kinds []string
	hang  bool // give the first frame only
}

func newFake(t *testing.T) *fake {
	t.Helper()
	topo := streams.Topology(streams.Options{})
	srv, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Listen: "127.0.0.1:0", Topology: topo})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := jsrun.Connect(jsrun.ConnectOptions{Server: srv, Name: "turncmd-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := jsrun.Provision(t.Context(), js, topo); err != nil {
		t.Fatal(err)
	}
	k := &fake{t: t, url: srv.ClientURL(), nc: nc}
	if _, err := nc.Subscribe("agent.*.*.*", k.agent); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *fake) agent(m *nats.Msg) {
	in, err := schemas.DecodeMsg(m.Subject, m.Data)
	if err != nil {
		k.t.Error(err)
		return
	}
	s, err := schemas.ParseSubject(m.Subject)
	if err != nil {
		k.t.Error(err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kinds = append(k.kinds, s.Get("kind"))
	r := &schemas.Result{
		Header: schemas.H(), Tenant: s.Get("tenant"), Session: s.Get("session"), Job: "j", Attempt: 1, Status: schemas.StatusOK,
		Branch: "main", Model: "tiny", Text: "Hello", Tokens: schemas.Tokens{1, 2}, Finish: "stop", PrefillOn: "p0", DecodeOn: "d0",
		Usage: schemas.Usage{Prompt: 9, Cached: 4, Completion: 2},
	}
	if in.Event != nil {
		r.Turn, r.Status, r.Failure = in.Event.Turn, schemas.StatusFailed, &schemas.Failure{Code: schemas.CodeCancelled, Message: "as you wish"}
		k.send(schemas.ResultSubject(r.Tenant, r.Session, r.Turn), r)
		return
	}
	k.turns = append(k.turns, in.Turn)
	if v := m.Header["traceparent"]; len(v) > 0 {
		k.trace = v[0]
	}
	r.Turn = in.Turn.Weir.Turn
	k.send(schemas.OutSubject(r.Tenant, r.Session, r.Turn), &schemas.Frame{Header: schemas.H(), Attempt: 1, Tokens: schemas.Tokens{1}, Text: "Hel"})
	if k.hang {
		return
	}
	if in.Turn.Model == "nope" {
		r.Status, r.Failure, r.Tokens, r.Text = schemas.StatusFailed, &schemas.Failure{Code: schemas.CodeModel, Message: "no such model", Param: "model"}, nil, ""
	}
	if in.Turn.Model == "full" {
		r.Status, r.Failure, r.Tokens, r.Text = schemas.StatusFailed, &schemas.Failure{Code: schemas.CodeBusy, Message: "no room", RetryNS: 42e9}, nil, ""
	}
	k.send(schemas.ResultSubject(r.Tenant, r.Session, r.Turn), r)
}

func (k *fake) send(subject string, m schemas.Message) {
	b, err := schemas.Encode(m)
	if err == nil {
		err = k.nc.Publish(subject, b)
	}
	if err != nil {
		k.t.Error(err)
	}
}

// ran is what a run of the command gave.
type ran struct {
	out, err string
	code     int
	text     string // of the error
}

func (k *fake) run(ctx context.Context, stdin string, args ...string) ran {
	k.t.Helper()
	return k.runTo(ctx, new(bytes.Buffer), stdin, args...)
}

// output is where the command writes.
type output interface {
	io.Writer
	String() string
}

func (k *fake) runTo(ctx context.Context, out output, stdin string, args ...string) ran {
	k.t.Helper()
	var errs bytes.Buffer
	c := NewCommand()
	c.SilenceErrors = true
	c.SetArgs(append([]string{"--nats", k.url}, args...))
	c.SetIn(strings.NewReader(stdin))
	c.SetOut(out)
	c.SetErr(&errs)
	r := ran{}
	if err := c.ExecuteContext(ctx); err != nil {
		r.code, r.text = 1, err.Error()
		var e *ExitError
		if errors.As(err, &e) {
			r.code = e.ExitCode()
		}
	}
	r.out, r.err = out.String(), errs.String()
	return r
}

func (k *fake) last() *schemas.Turn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.turns[len(k.turns)-1]
}

func TestTextForm(t *testing.T) {
	k := newFake(t)
	r := k.run(t.Context(), "", "hi", "--max-tokens", "5", "--stop", "a", "--stop", "b,c", "--system", "be brief")
	if r.code != 0 || r.out != "Hello\n" || !strings.Contains(r.err, "9 tokens in (4 cached), 2 out") || !strings.Contains(r.err, "decode on d0") {
		t.Errorf("%+v", r)
	}
	m := k.last()
	if len(m.Messages) != 2 || *m.MaxTokens != 5 || len(m.Stop) != 2 || m.Stop[1] != "b,c" || m.Temperature != nil || m.Seed != nil {
		t.Errorf("the turn is %+v", m)
	}
	if !traceparent.MatchString(k.trace) || !strings.HasSuffix(k.trace, "-01") {
		t.Errorf("traceparent is %q, want a sampled one", k.trace)
	}
}

func TestJSONForm(t *testing.T) {
	k := newFake(t)
	r := k.run(t.Context(), "from stdin", "-", "-o", "json", "--frames", "--session", "s", "--turn", "t1", "--branch", "b", "--temperature", "0", "--seed", "0")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != 0 || len(lines) != 3 {
		t.Fatalf("%+v", r)
	}
	var f Frame
	if err := json.Unmarshal([]byte(lines[0]), &f); err != nil || f.Event != "frame" || f.Text != "Hel" {
		t.Errorf("frame %s, %v", lines[0], err)
	}
	var s Summary
	if err := json.Unmarshal([]byte(lines[2]), &s); err != nil {
		t.Fatal(err)
	}
	if s.Event != "result" || s.Text != "Hello" || len(s.Tokens) != 2 || s.CachedTokens != 4 || s.PrefillOn != "p0" || s.Attempts != 1 || s.Turn != "t1" || len(s.Known) != 32 || s.TotalMS < s.TTFTMS {
		t.Errorf("summary %+v", s)
	}
	if m := k.last(); m.Weir.Branch != "b" || *m.Temperature != 0 || *m.Seed != 0 || !strings.Contains(string(m.Messages[0]), "from stdin") {
		t.Errorf("the turn is %+v", m)
	}
}

func TestFiles(t *testing.T) {
	k := newFake(t)
	dir := t.TempDir()
	file := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	r := k.run(t.Context(), "", "--tokens", file("ids", "[1, 2,3]"), "--force-output", file("out", "[7]"), "--ignore-eos", "--deadline", "1m", "--priority", "-3")
	if m := k.last(); r.code != 0 || len(m.Weir.InputTokens) != 3 || len(m.Weir.ForceOutput) != 1 || !m.Weir.IgnoreEOS || m.Weir.Priority != -3 || m.Weir.DeadlineNS == 0 {
		t.Errorf("%+v, turn %+v", r, m)
	}
	r = k.run(t.Context(), "", "--file", file("text", "a prompt"), "--raw")
	if m := k.last(); r.code != 0 || string(m.Prompt) != `"a prompt"` {
		t.Errorf("%+v, turn %+v", r, m)
	}
	r = k.run(t.Context(), "", "--body", file("body", `{"messages":[{"role":"user","content":"x"}],"stream":true,"top_k":3}`), "--model", "tiny")
	if m := k.last(); r.code != 0 || m.Stream != nil || *m.TopK != 3 || m.Model != "tiny" {
		t.Errorf("%+v, turn %+v", r, m)
	}
	for _, c := range [][]string{
		{"--tokens", file("bad", "[1,")},
		{"--tokens", file("empty", "[]")},
		{"--body", file("odd", `{"foo":1}`)},
		{"--file", dir + "/none"},
		{"--file", file("latin1", "\xe9")},
	} {
		if r := k.run(t.Context(), "", c...); r.code != 2 || r.text == "" {
			t.Errorf("%v: %+v, want exit code 2", c, r)
		}
	}
}

func TestWrongUse(t *testing.T) {
	k := newFake(t)
	for _, c := range [][]string{
		{},
		{"a", "b"},
		{"x", "--bad"},
		{"x", "--temperature", "9"},
		{"x", "--max-tokens", "0"},
		{"x", "-o", "xml"},
		{"x", "--frames"},
		{"x", "--session", "a b"},
		{"x", "--tokens", "f"},
		{"x", "--tenant", ""},
		{"x", "--deadline", "-1s"},
		{"--tokens", "f", "--system", "y"},
		{"x", "--stop", ""},
	} {
		if r := k.run(t.Context(), "", c...); r.code != 2 || r.out != "" {
			t.Errorf("%q: %+v, want exit code 2", c, r)
		}
	}
	if r := k.run(t.Context(), "", "x", "--model", "nope"); r.code != 1 || !strings.Contains(r.text, "model_not_found: no such model (model)") {
		t.Errorf("%+v", r)
	}
	if r := k.run(t.Context(), "", "x", "--model", "full"); r.code != 1 || !strings.Contains(r.text, "overloaded: no room; try again in 42s") {
		t.Errorf("%+v", r)
	}
	if r := k.run(t.Context(), "", "x", "--nats", "nats://127.0.0.1:1"); r.code != 1 || !strings.Contains(r.text, "weir up") {
		t.Errorf("%+v", r)
	}
}

// TestInterrupt: the end of the context, which is what Ctrl-C does, cancels the turn.
func TestInterrupt(t *testing.T) {
	k := newFake(t)
	k.hang = true
	ctx, cancel := context.WithCancel(t.Context())
	r := k.runTo(ctx, &atFirst{do: cancel}, "", "hi", "-o", "json", "--frames")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	var s Summary
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil || r.code != 1 || s.Failure == nil || s.Failure.Code != schemas.CodeCancelled {
		t.Errorf("%+v, %v", r, err)
	}
	if len(k.kinds) != 2 || k.kinds[1] != string(schemas.EventCancel) {
		t.Errorf("published were %v", k.kinds)
	}
}

// atFirst calls do at the first write.
type atFirst struct {
	bytes.Buffer
	do func()
}

func (a *atFirst) Write(p []byte) (int, error) {
	a.do()
	return a.Buffer.Write(p)
}

func TestVisible(t *testing.T) {
	var b bytes.Buffer
	n, err := visible{&b}.Write([]byte("a\x1b[2J\tbé漢\n\u009b\x7f"))
	if want := "a\ufffd[2J\tbé漢\n\ufffd\ufffd"; err != nil || n == 0 || b.String() != want {
		t.Errorf("%q, %d, %v", b.String(), n, err)
	}
}
