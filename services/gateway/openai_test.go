package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// TestFieldsOfClients: every field that OpenAI's client has a type for is taken,
// and what means nothing to a model is not published.
func TestFieldsOfClients(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["hi"] = hello
	a := k.post("/v1/chat/completions", chatBody("hi", `,
		"audio":null,"frequency_penalty":0,"function_call":null,"functions":null,"logit_bias":null,"logprobs":null,"max_completion_tokens":64,"max_tokens":null,
		"metadata":{"a":"b"},"modalities":["text"],"n":1,"parallel_tool_calls":false,"prediction":null,"presence_penalty":0,
		"prompt_cache_key":"app","prompt_cache_retention":"24h","prompt_cache_options":{"mode":"implicit","ttl":"30m"},"cache_control":{"type":"ephemeral"},
		"reasoning_effort":"low","response_format":{"type":"text"},"safety_identifier":"x","seed":7,"service_tier":"auto","stop":null,"store":false,
		"stream":false,"stream_options":null,"temperature":1,"tool_choice":"auto","top_logprobs":null,"top_p":1,"user":"u","verbosity":"low","web_search_options":null,
		"tools":[{"type":"function","function":{"name":"f","parameters":{}},"cache_control":{"type":"ephemeral"}}]`), headerSession, "s")
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	sent := within(t, k.turns)
	if string(sent.Tools[0]) != `{"type":"function","function":{"name":"f","parameters":{}}}` || string(sent.ToolChoice) != `"auto"` ||
		*sent.ParallelToolCalls || *sent.MaxCompletionTokens != 64 || string(sent.ReasoningEffort) != `"low"` {
		t.Errorf("the turn is %+v", sent.Body)
	}
	for _, field := range []string{"thinking", "reasoning", "previous_response_id", "transforms", "input"} {
		a := k.post("/v1/chat/completions", chatBody("hi", `,"`+field+`":{}`))
		if a.status != 400 || at(a.object(t), "error", "param") != field {
			t.Errorf("%s: %d %s", field, a.status, a.body)
		}
	}
}

// deaf is a response that nobody reads.
type deaf struct{ http.ResponseWriter }

func (deaf) Header() http.Header              { return http.Header{} }
func (deaf) WriteHeader(int)                  {}
func (deaf) Write(b []byte) (int, error)      { return io.Discard.Write(b) }
func (deaf) SetWriteDeadline(time.Time) error { return nil }
func (deaf) FlushError() error                { return nil }

// TestChunksAllocateNothing: text without a parser costs no memory per chunk.
func TestChunksAllocateNothing(t *testing.T) {
	w := deaf{}
	g := &Gateway{o: Options{WriteTimeout: time.Second, Fingerprint: "f"}}
	x := &exchange{g: g, d: openai{}, w: w, rc: http.NewResponseController(w), c: &call{stream: true, model: "tiny", ref: turns.Ref{Turn: "t"}}}
	if err := x.begin(); err != nil {
		t.Fatal(err)
	}
	e := turns.Event{Text: "some \"text\"\n", Tokens: []int32{1, 2}}
	n := testing.AllocsPerRun(100, func() {
		if err := x.say(&e); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations per chunk", n)
	}
}

// parseChat reads a body as the gateway does before it publishes.
func parseChat(g *Gateway, body string, h http.Header) (*call, *apiError) {
	r := &http.Request{Header: h}
	c, e := openai{}.parse(g, r, []byte(body))
	if e != nil {
		return nil, e
	}
	c.model = c.turn.Model
	return c, g.place(r, c)
}

// TestMarksAreNotContent: a request that is repeated with other cache marks, other
// hints or as a stream is the same turn.
func TestMarksAreNotContent(t *testing.T) {
	g := &Gateway{o: Options{Tenant: "default"}}
	h := http.Header{headerIdem: {"k"}}
	var published []byte
	for _, more := range []string{
		`"content":"a"}]}`,
		`"cache_control":{"type":"ephemeral"},"content":"a"}]}`,
		`"content":"a"}],"stream":true,"stream_options":{"include_usage":true},"nvext":{"agent_hints":{"osl":9}},"cache_control":{"type":"ephemeral"}}`,
		`"content":"a"}],"metadata":{"x":"y"},"prompt_cache_options":{"ttl":"30m"},"prompt_cache_retention":"24h","safety_identifier":"i"}`,
	} {
		c, e := parseChat(g, `{"model":"m","messages":[{"role":"user",`+more, h)
		if e != nil {
			t.Fatalf("%s: %+v", more, e)
		}
		b, err := json.Marshal(c.turn)
		if err != nil {
			t.Fatal(err)
		}
		if published == nil {
			published = b
		} else if !bytes.Equal(b, published) {
			t.Errorf("%s is published as\n%s, the first as\n%s", more, b, published)
		}
	}
}

// FuzzChat: a body is refused with a reason, or becomes a turn of a valid session
// that can be written.
func FuzzChat(f *testing.F) {
	for _, s := range []string{
		chatBody("hi", ""), chatBody("hi", `,"user":7,"metadata":[],"nvext":{"agent_context":{"session_id":"x"}},"prompt_cache_key":"k"`),
		`{"messages":[{"role":"user","content":[{"type":"image_url","cache_control":{}}]}],"tools":[{"cache_control":1}]}`,
		`{"messages":[7]}`, `{"messages":[null],"metadata":{"user_id":"a_session_b"}}`, `{"weir":{"known":"x","branch":"b"},"messages":[{}]}`,
	} {
		f.Add(s, "x-codex-turn-metadata", `{"request_kind":"compaction"}`)
	}
	g := &Gateway{o: Options{Tenant: "default"}}
	f.Fuzz(func(t *testing.T, body, name, value string) {
		h := http.Header{}
		h.Set(name, value)
		c, e := parseChat(g, body, h)
		if e != nil {
			if e.Status < 400 || e.Message == "" || !json.Valid(e.body()) {
				t.Errorf("%q: %+v", body, e)
			}
			return
		}
		if !schemas.ValidID(c.session) {
			t.Errorf("%q: session %q", body, c.session)
		}
		if err := c.turn.Check(); err != nil {
			t.Errorf("%q: %v", body, err)
		}
		if _, err := json.Marshal(c.turn); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	})
}
