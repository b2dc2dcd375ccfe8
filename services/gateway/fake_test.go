package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// fake plays the part of everything behind the turn path. It answers each turn
// by the script that the last message's content names.
type fake struct {
	t       *testing.T
	nc      *nats.Conn
	js      jetstream.JetStream
	g       *Gateway
	url     string
	scripts map[string]func(k *fake, r turns.Ref, t *schemas.Turn)
	turns   chan *schemas.Turn  // as they were published
	refs    chan turns.Ref      // likewise
	events  chan *schemas.Event // cancels
	running sync.WaitGroup      // scripts
}

func newFake(t *testing.T, o Options) *fake {
	t.Helper()
	topo := streams.Topology(streams.Options{})
	srv, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Topology: topo})
	if err != nil {
		t.Fatal(err)
	}
	k := &fake{
		t: t, scripts: map[string]func(*fake, turns.Ref, *schemas.Turn){}, turns: make(chan *schemas.Turn, 64),
		refs: make(chan turns.Ref, 64), events: make(chan *schemas.Event, 64),
	}
	connect := func() *nats.Conn {
		nc, err := jsrun.Connect(jsrun.ConnectOptions{Server: srv, Name: "gateway-test"})
		if err != nil {
			t.Fatal(err)
		}
		return nc
	}
	k.nc = connect()
	o.Conn = connect()
	if k.js, err = jetstream.New(k.nc); err != nil {
		t.Fatal(err)
	}
	if err := jsrun.Provision(t.Context(), k.js, topo); err != nil {
		t.Fatal(err)
	}
	if _, err := k.nc.Subscribe("agent.*.*.*", k.agent); err != nil {
		t.Fatal(err)
	}
	if err := k.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if k.g, err = New(o); err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(k.g.Handler())
	k.url = h.URL
	t.Cleanup(func() {
		k.g.stop()
		h.Close()
		_ = k.g.Shutdown(t.Context())
		k.running.Wait()
		o.Conn.Close()
		k.nc.Close()
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	return k
}

// agent takes what the gateway publishes.
func (k *fake) agent(m *nats.Msg) {
	in, err := schemas.DecodeMsg(m.Subject, m.Data)
	if err != nil {
		k.t.Errorf("the gateway published %s: %v", m.Subject, err)
		return
	}
	if in.Event != nil {
		k.events <- in.Event
		return
	}
	s, err := schemas.ParseSubject(m.Subject)
	if err != nil {
		k.t.Error(err)
		return
	}
	ref := turns.Ref{Tenant: s.Get("tenant"), Session: s.Get("session"), Turn: in.Turn.Weir.Turn}
	k.turns <- in.Turn
	k.refs <- ref
	if f := k.scripts[ask(in.Turn)]; f != nil {
		k.running.Go(func() { f(k, ref, in.Turn) })
	}
}

// ask is the text of a turn's last message or prompt.
func ask(t *schemas.Turn) string {
	var m struct {
		Content string `json:"content"`
	}
	if n := len(t.Messages); n > 0 && json.Unmarshal(t.Messages[n-1], &m) == nil {
		return m.Content
	}
	var p string
	if json.Unmarshal(t.Prompt, &p) == nil {
		return p
	}
	return ""
}

func (k *fake) publish(subject string, m schemas.Message) {
	b, err := schemas.Encode(m)
	if err != nil {
		k.t.Error(err)
		return
	}
	if err := k.nc.Publish(subject, b); err != nil {
		k.t.Error(err)
	}
}

func (k *fake) frame(r turns.Ref, first int, at int, text string, toks ...int32) {
	k.publish(schemas.OutSubject(r.Tenant, r.Session, r.Turn), &schemas.Frame{Header: schemas.H(), Attempt: 1, First: first, Tokens: toks, TextAt: at, Text: text})
}

func (k *fake) ok(r turns.Ref, text, finish string, toks ...int32) {
	k.publish(schemas.ResultSubject(r.Tenant, r.Session, r.Turn), &schemas.Result{
		Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, Branch: "main", Job: "j", Attempt: 1, Status: schemas.StatusOK,
		Model: "tiny", Text: text, Tokens: toks, Finish: finish, Usage: schemas.Usage{Prompt: 10, Cached: 7, Completion: len(toks)},
		PrefillOn: "e0", DecodeOn: "e1",
	})
}

func (k *fake) failed(r turns.Ref, f schemas.Failure) {
	k.publish(schemas.ResultSubject(r.Tenant, r.Session, r.Turn), &schemas.Result{
		Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, Job: "j", Attempt: 1, Status: schemas.StatusFailed, Failure: &f,
	})
}

// hello answers in three pieces, of which one splits a character.
func hello(k *fake, r turns.Ref, _ *schemas.Turn) {
	k.frame(r, 0, 0, "Hé", 1, 2)
	k.frame(r, 2, 3, "", 3)
	k.frame(r, 3, 3, "llo \"you\"\n", 4, 5)
	k.ok(r, "Héllo \"you\"\n", "stop", 1, 2, 3, 4, 5)
}

// answer is a response that was read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

func (k *fake) post(path, body string, header ...string) answer {
	k.t.Helper()
	return k.do(http.MethodPost, path, strings.NewReader(body), header...)
}

func (k *fake) do(method, path string, body io.Reader, header ...string) answer {
	k.t.Helper()
	req, err := http.NewRequestWithContext(k.t.Context(), method, k.url+path, body)
	if err != nil {
		k.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(b)}
}

// object reads a JSON body.
func (a answer) object(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		t.Fatalf("status %d, body %q: %v", a.status, a.body, err)
	}
	return m
}

// events splits a stream into the JSON of its data lines.
func (a answer) events(t *testing.T) (chunks []map[string]any, done bool) {
	t.Helper()
	for line := range bytes.SplitSeq([]byte(a.body), []byte("\n\n")) {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		switch {
		case !ok:
			continue
		case string(data) == "[DONE]":
			return chunks, true
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatalf("event %q: %v", data, err)
		}
		chunks = append(chunks, m)
	}
	return chunks, false
}

// at walks into decoded JSON: names for objects, ints for arrays.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// within fails the test when nothing comes in time.
func within[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("not reached")
	}
}
