package explaincmd

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/tokenizer"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// bus is a NATS with weir's streams.
func bus(t *testing.T) (*nats.Conn, string) {
	t.Helper()
	topo := streams.Topology(streams.Options{})
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Listen: "127.0.0.1:0", Topology: topo})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := jsrun.Provision(t.Context(), js, topo); err != nil {
		t.Fatal(err)
	}
	return nc, s.ClientURL()
}

func publish(t *testing.T, nc *nats.Conn, subject string, m schemas.Message) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	body, err := schemas.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), subject, body); err != nil {
		t.Fatal(err)
	}
}

// explain runs the command as a person does.
func explain(t *testing.T, url string, args ...string) (string, error) {
	t.Helper()
	c := NewCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append(args, "--nats", url))
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// TestReads: turns come from AGENT in order, a large body from the bucket, branches
// from lineage; what is not there is said.
func TestReads(t *testing.T) {
	nc, url := bus(t)
	client, err := turns.New(nc, turns.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	large := strings.Repeat("large ", 100_000) + "END" // far more than a message of AGENT holds
	message := func(text string) json.RawMessage {
		b, err := json.Marshal(map[string]string{"role": "user", "content": text})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, turn := range []struct{ session, id, text string }{{"s1", "t1", "small"}, {"other", "t1", "of another session"}, {"s1", "t2", large}, {"s1", "t3", "no answer yet"}} {
		st, err := client.Publish(t.Context(), turns.Request{Session: turn.session, Turn: &schemas.Turn{
			Weir: schemas.TurnMeta{Turn: turn.id}, Body: schemas.Body{Messages: []json.RawMessage{message(turn.text)}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		st.Close()
	}
	result := func(id string, at int) {
		publish(t, nc, schemas.ResultSubject("default", "s1", id), &schemas.Result{
			Header: schemas.H(), Tenant: "default", Session: "s1", Turn: id, Branch: "main", Status: schemas.StatusOK, Attempt: 1, Tokens: schemas.Tokens{1},
			Usage: schemas.Usage{Prompt: 100, Cached: 64}, Miss: &schemas.Miss{Cause: schemas.MissRewrite, Byte: at, Known: 70},
			Timing: schemas.Timing{AdmittedNS: 1, TotalNS: 1e6, Spans: []schemas.StageSpan{{Stage: schemas.SpanDecode, On: "d0", To: 1e6}}},
		})
	}
	result("t1", 2)
	result("t2", len(large)-3)
	result("t0", 0) // AGENT has dropped the turn

	out, err := explain(t, url, "turn", "s1", "t2", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var rep TurnReport
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatal(err)
	}
	if rep.Miss == nil || rep.Miss.After != "END" || rep.Miss.Role != "user" || len(rep.Stages) != 1 || rep.Tokens.New != 30 {
		t.Errorf("report %s", out)
	}
	if len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], "lineage of cell c0 does not answer") {
		t.Errorf("notes %q", rep.Notes)
	}

	sub, err := nc.Subscribe(schemas.SessionSubject("c0"), func(m *nats.Msg) {
		body, err := schemas.Encode(&schemas.SessionReply{Header: schemas.H(), Found: true, Branches: []schemas.BranchInfo{{ID: "main", State: schemas.BranchRunning}}})
		if err == nil {
			_ = m.Respond(body)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"turn", "s1", "t1"}, []string{`before  "sm"`, `from    "all"`, "decode  d0"}},
		{[]string{"turn", "s1", "t3"}, []string{"no stored result"}},
		{[]string{"turn", "s1", "t0"}, []string{"not in AGENT", "cannot be shown"}},
		{[]string{"session", "s1"}, []string{"main", "running", "t1", "t2", "no result", "64.0 %", "rewrite 3", "1 earlier turn is not listed"}},
	} {
		out, err := explain(t, url, c.args...)
		if err != nil {
			t.Errorf("%v: %v", c.args, err)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%v: no %q in\n%s", c.args, w, out)
			}
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"turn", "s1", "nobody"}, "nothing is known of turn nobody"},
		{[]string{"turn", "s1", "t1", "--tenant", "elsewhere"}, "nothing is known"},
		{[]string{"turn", "s.1", "t1"}, "SESSION"},
		{[]string{"turn", "s1", "t1", "-o", "xml"}, "only json"},
		{[]string{"session", "s1", "--limit", "0"}, "--limit"},
	} {
		if out, err := explain(t, url, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q; %s", c.args, err, c.want, out)
		}
	}
}

// TestLocate: a token of the prompt is found in its message, at its byte. On the null
// engine's alphabet each byte is a token, so the place is known beforehand.
func TestLocate(t *testing.T) {
	nc, _ := bus(t)
	m, err := model.Open(model.Options{Engine: model.EngineNull})
	if err != nil {
		t.Fatal(err)
	}
	r, err := tokenizer.New(m, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tokenizer.Serve(ctx, nc, r, "0.1.0", nil) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, err := nc.Request(tokenizer.Subject(m.Name), []byte("{}"), time.Second); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	texts := []string{"be brief", "파일을 읽어 주세요 and say what it prints", "it prints nothing", "then make it print something"}
	roles := []string{"system", "user", "assistant", "user"}
	turn := &schemas.Turn{}
	for i := range texts {
		b, err := json.Marshal(map[string]string{"role": roles[i], "content": texts[i]})
		if err != nil {
			t.Fatal(err)
		}
		turn.Messages = append(turn.Messages, b)
	}
	whole := r.Render(&schemas.RenderRequest{Header: schemas.H(), Messages: turn.Messages})
	if whole.Failure != nil {
		t.Fatal(whole.Failure.Message)
	}
	s, err := NewSource(nc, "c0", "default")
	if err != nil {
		t.Fatal(err)
	}
	find := func(prompt, token int) (*Miss, []string) {
		f := &facts{tenant: "default", session: "s1", turns: []*heard{{id: "t1", turn: turn}}, results: map[string]*schemas.Result{"t1": {Model: m.Name, Usage: schemas.Usage{Prompt: prompt}}}}
		miss := &Miss{Cause: schemas.MissEvicted, Token: token}
		s.locate(t.Context(), f, "t1", miss)
		return miss, f.notes
	}
	for i, text := range texts {
		for _, at := range []int{0, 3, len(text) - 1} {
			before, err := m.Vocab.Tokenize(whole.Text[:strings.Index(whole.Text, text)+at], true, true)
			if err != nil {
				t.Fatal(err)
			}
			got, notes := find(len(whole.Tokens), len(before)+len(whole.Tokens)-len(tokensOfAll(t, m, whole.Text)))
			if got.Message == nil || *got.Message != i || got.Role != roles[i] || got.Byte == nil || *got.Byte != at || got.About {
				t.Errorf("message %d byte %d: %+v, %q", i, at, got, notes)
			}
		}
	}
	if got, notes := find(10*len(whole.Tokens), 5); got.Message != nil || len(notes) != 1 {
		t.Errorf("a prompt that was quite another: %+v, %q", got, notes)
	}
	// The tokens of this one fit no message, so they travel compressed.
	large, err := json.Marshal(map[string]string{"role": "user", "content": strings.Repeat("all is well. ", schemas.MaxMessage/60)})
	if err != nil {
		t.Fatal(err)
	}
	turn.Messages = []json.RawMessage{large}
	n := len(r.Render(&schemas.RenderRequest{Header: schemas.H(), Messages: turn.Messages}).Tokens)
	q := &search{s: s, model: m.Name, turn: turn, all: turn.Messages}
	if got, err := q.render(t.Context(), 1, nil); err != nil || len(got.Tokens) != n {
		t.Errorf("a prompt of %d tokens: %v", n, err)
	}
}

// tokensOfAll is the text's tokens with BOS, from which the renderer's may differ by it.
func tokensOfAll(t *testing.T, m *model.Model, text string) []int32 {
	t.Helper()
	tokens, err := m.Vocab.Tokenize(text, true, true)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}
