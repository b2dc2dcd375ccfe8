package gateway

import (
	"io"
	"net/http"
	"testing"
	"time"

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
