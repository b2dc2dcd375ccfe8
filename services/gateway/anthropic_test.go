package gateway

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tokenizer"
	"github.com/weir-dev/weir/services/turns"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", path, got)
	}
}

// translated is what a Messages body becomes.
func translated(t *testing.T, body string, o messagesOptions) (*schemas.Turn, *apiError) {
	t.Helper()
	q := new(messagesRequest)
	if err := turns.DecodeRequest([]byte(body), q); err != nil {
		return nil, messagesError("", err)
	}
	return q.turn(o)
}

// lines is each message on a line of its own.
func lines(list []json.RawMessage) string {
	return strings.TrimSpace(string(bytes.Join(func() (out [][]byte) {
		for _, m := range list {
			out = append(out, m)
		}
		return out
	}(), []byte("\n"))))
}

func TestMessagesTranslation(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"strings": {
			`{"model":"m","system":"Be brief.","messages":[{"role":"user","content":"Hi <b>"},{"role":"assistant","content":"Yes?"},{"role":"user","content":"한국어"}]}`,
			`{"role":"system","content":"Be brief."}
{"role":"user","content":"Hi <b>"}
{"role":"assistant","content":"Yes?"}
{"role":"user","content":"한국어"}`,
		},
		"system blocks, one about billing": {
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=af31b;"},{"type":"text","text":"A","cache_control":{"type":"ephemeral"}},{"type":"text","text":"B"}],"messages":[{"role":"user","content":[{"type":"text","text":"one"}]}]}`,
			`{"role":"system","content":"A\n\nB"}
{"role":"user","content":"one"}`,
		},
		"an answer with reasoning, text on both sides and calls": {
			`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[
			  {"type":"thinking","thinking":"Let me","signature":"s"},{"type":"redacted_thinking","data":"?"},{"type":"text","text":"I look. "},
			  {"type":"tool_use","id":"toolu_1","name":"read","input":{ "path" : "a b" },"cache_control":{"type":"ephemeral"}},
			  {"type":"text","text":"And more."},{"type":"tool_use","id":"toolu_2","name":"now","input":{}}]},
			 {"role":"user","content":[
			  {"type":"tool_result","tool_use_id":"toolu_1","content":"text"},
			  {"type":"tool_result","tool_use_id":"toolu_2","is_error":true,"content":[{"type":"text","text":"no clock"}],"cache_control":{"type":"ephemeral"}},
			  {"type":"text","text":"go on"}]}]}`,
			`{"role":"user","content":"x"}
{"role":"assistant","content":"I look. And more.","reasoning_content":"Let me","tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"read","arguments":"{\"path\":\"a b\"}"}},{"id":"toolu_2","type":"function","function":{"name":"now","arguments":"{}"}}]}
{"role":"tool","content":"text","tool_call_id":"toolu_1"}
{"role":"tool","content":"Error: no clock","tool_call_id":"toolu_2"}
{"role":"user","content":"go on"}`,
		},
		"calls without text": {
			`{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}
{"role":"tool","content":"","tool_call_id":"t"}`,
		},
		"images": {
			`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"text","text":"what?"}]},
			 {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://x/y.png"}}]}]}]}`,
			`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"text","text":"what?"}]}
{"role":"tool","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}],"tool_call_id":"t"}`,
		},
		"a system message in between": {
			`{"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"},{"role":"user","content":[]}]}`,
			`{"role":"user","content":"a"}
{"role":"system","content":"b"}
{"role":"user","content":""}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			turn, e := translated(t, c.body, messagesOptions{})
			if e != nil {
				t.Fatal(e.Message)
			}
			if got := lines(turn.Messages); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestMessagesParameters(t *testing.T) {
	const m = `"messages":[{"role":"user","content":"x"}]`
	for name, c := range map[string]struct{ body, want string }{
		"sampling": {
			`{"max_tokens":9,"temperature":0.5,"top_p":0.9,"top_k":4,"stop_sequences":["a","b"],"metadata":{"user_id":"u"},` + m + `}`,
			`{"max_tokens":9,"temperature":0.5,"top_p":0.9,"top_k":4,"stop":["a","b"],"metadata":{"user_id":"u"}}`,
		},
		"tools, any": {
			`{"tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}},{"type":"custom","name":"g","input_schema":{}}],"tool_choice":{"type":"any","disable_parallel_tool_use":true},` + m + `}`,
			`{"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}},{"type":"function","function":{"name":"g","parameters":{}}}],"tool_choice":"required","parallel_tool_calls":false}`,
		},
		"a certain tool": {
			`{"tool_choice":{"type":"tool","name":"f"},` + m + `}`,
			`{"tool_choice":{"type":"function","function":{"name":"f"}}}`,
		},
		"no tool": {`{"tool_choice":{"type":"none"},` + m + `}`, `{"tool_choice":"none"}`},
		"a schema": {
			`{"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},` + m + `}`,
			`{"response_format":{"type":"json_schema","json_schema":{"name":"output","schema":{"type":"object"}}}}`,
		},
		"thinking":    {`{"thinking":{"type":"enabled","budget_tokens":1024},` + m + `}`, `{"chat_template_kwargs":{"enable_thinking":true}}`},
		"no thinking": {`{"thinking":{"type":"disabled"},` + m + `}`, `{"chat_template_kwargs":{"enable_thinking":false}}`},
		"adaptive":    {`{"thinking":{"type":"adaptive"},` + m + `}`, `{}`},
		"of Anthropic's service": {
			`{"service_tier":"auto","container":null,"mcp_servers":[],"context_management":{"edits":[]},"inference_geo":"us","speed":"fast","cache_control":{"type":"ephemeral"},` + m + `}`, `{}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			turn, e := translated(t, c.body, messagesOptions{thinks: true})
			if e != nil {
				t.Fatal(e.Message)
			}
			turn.Messages = nil
			got, err := json.Marshal(&turn.Body)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	turn, e := translated(t, `{"thinking":{"type":"enabled","budget_tokens":1024},`+m+`}`, messagesOptions{})
	if e != nil || turn.ChatTemplateKwargs != nil {
		t.Errorf("a template without the option gets %s (%v)", turn.ChatTemplateKwargs, e)
	}
	turn, e = translated(t, `{"system":[{"type":"text","text":"x-anthropic-billing-header: a"}],`+m+`}`, messagesOptions{keepBilling: true})
	if e != nil || len(turn.Messages) != 2 {
		t.Errorf("a billing block that is to be kept leaves %s (%v)", turn.Messages, e)
	}
}

func TestMessagesRefusals(t *testing.T) {
	for body, want := range map[string]string{
		`{"messages":[]}`: "messages",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`:                                                     "messages",
		`{"messages":[{"role":"tool","content":"x"}]}`:                                                                                        "messages.0.role",
		`{"messages":[{"role":"user","content":"x","name":"n"}]}`:                                                                             "messages.0.name",
		`{"messages":[{"role":"user"}]}`:                                                                                                      "messages.0.content",
		`{"messages":[7]}`:                                                                                                                    "messages.0",
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x","colour":1}]}]}`:                                                    "messages.0.content.0.colour",
		`{"messages":[{"role":"user","content":[{"type":"text","text":7}]}]}`:                                                                 "messages.0.content.0.text",
		`{"messages":[{"role":"user","content":[{"type":"document","source":{}}]}]}`:                                                          "messages.0.content.0.type",
		`{"messages":[{"role":"user","content":[{"type":"tool_use","id":"a","name":"b","input":{}}]}]}`:                                       "messages.0.content.0.type",
		`{"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}`:                                                                   "messages.0.content.0.tool_use_id",
		`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}]}`:                                  "messages.0.content.0.source.type",
		`{"system":[{"type":"image"}],"messages":[{"role":"user","content":"x"}]}`:                                                            "system.0",
		`{"nothing":1,"messages":[{"role":"user","content":"x"}]}`:                                                                            "nothing",
		`{"temperature":1.5,"messages":[{"role":"user","content":"x"}]}`:                                                                      "temperature",
		`{"max_tokens":0,"messages":[{"role":"user","content":"x"}]}`:                                                                         "max_tokens",
		`{"container":"c","messages":[{"role":"user","content":"x"}]}`:                                                                        "container",
		`{"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2}],"messages":[{"role":"user","content":"x"}]}`:              "tools.0.type",
		`{"tools":[{"name":"f"}],"messages":[{"role":"user","content":"x"}]}`:                                                                 "tools.0.input_schema",
		`{"tool_choice":{"type":"often"},"messages":[{"role":"user","content":"x"}]}`:                                                         "tool_choice.type",
		`{"thinking":{"type":"deep"},"messages":[{"role":"user","content":"x"}]}`:                                                             "thinking.type",
		`{"output_format":{"type":"xml"},"messages":[{"role":"user","content":"x"}]}`:                                                         "output_format",
		`{"stop_sequences":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"],"messages":[{"role":"user","content":"x"}]}`: "stop_sequences",
	} {
		_, e := translated(t, body, messagesOptions{})
		switch {
		case e == nil:
			t.Errorf("%s is taken", body)
		case e.Status != 400 || e.Param != want || !strings.HasPrefix(e.Message, strings.SplitN(want, "[", 2)[0]):
			t.Errorf("%s: %d, %q, %q; want %q", body, e.Status, e.Param, e.Message, want)
		}
	}
}

// spoken is what a dialect's speaker writes for these pieces.
func spoken(t *testing.T, d dialect, c *call, pieces []piece, r *reply, fail *apiError) string {
	t.Helper()
	rec := httptest.NewRecorder()
	s := d.newSpeaker(c, &sse{w: rec, rc: http.NewResponseController(rec), timeout: time.Second, fingerprint: "weir"})
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check(s.begin())
	for i := range pieces {
		check(s.piece(&pieces[i]))
	}
	if fail != nil {
		check(s.fail(fail))
	} else {
		check(s.end(r))
	}
	return rec.Body.String()
}

// said is an answer with everything in it, in pieces and whole.
func said() ([]piece, *reply) {
	text := func(s string) piece { return piece{delta: delta{Content: s, Call: -1}} }
	pieces := []piece{
		{delta: delta{Reasoning: "Let me ", Call: -1}},
		{delta: delta{Reasoning: "see.", Call: -1}},
		text("I "), text("look <b>\n"),
		{delta: delta{Call: 0, ID: "call_a", Name: "read"}},
		{delta: delta{Call: 0, Arguments: `{"path":`}},
		{delta: delta{Call: 0, Arguments: `"a"}`}},
		{delta: delta{Call: 1, ID: "call_b", Name: "now", Arguments: "{}"}},
	}
	content := "I look <b>\n"
	return pieces, &reply{
		Result: &schemas.Result{
			Header: schemas.H(), Tenant: "default", Session: "s1", Turn: "t1", Branch: "main", Job: "j", Attempt: 1, Status: schemas.StatusOK, Model: "tiny",
			Usage: schemas.Usage{Prompt: 100, Cached: 64, Completion: 20}, Finish: "tool_calls",
		},
		Message: message{Role: "assistant", Content: &content, Reasoning: "Let me see.", Calls: []toolCall{
			{ID: "call_a", Type: "function", Function: calledFunction{Name: "read", Arguments: `{"path":"a"}`}},
			{ID: "call_b", Type: "function", Function: calledFunction{Name: "now", Arguments: "{}"}},
		}},
		Finish: "tool_calls",
	}
}

func called(more any) *call {
	return &call{session: "s1", ref: turns.Ref{Tenant: "default", Session: "s1", Turn: "t1"}, model: "tiny", created: 1700000000, more: more}
}

// indented is JSON for people.
func indented(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

func TestMessagesEvents(t *testing.T) {
	pieces, r := said()
	c := called(&messagesMore{})
	golden(t, "messages_stream.txt", spoken(t, anthropic{}, c, pieces, r, nil))
	golden(t, "messages_whole.json", indented(t, anthropic{}.whole(c, r)))
	golden(t, "messages_failed.txt", spoken(t, anthropic{}, c, pieces[:1], nil, ofError(turns.ErrUnavailable)))
}

func TestMessagesStopReason(t *testing.T) {
	for name, c := range map[string]struct {
		finish, end  string
		stops        []string
		want, wantAt string
	}{
		"end token":           {"stop", "</s>", []string{"x"}, "end_turn", ""},
		"no stop sequences":   {"stop", "", nil, "end_turn", ""},
		"one stop sequence":   {"stop", "", []string{"x"}, "stop_sequence", "x"},
		"several of them":     {"stop", "", []string{"x", "y"}, "stop_sequence", ""},
		"length":              {"length", "", []string{"x"}, "max_tokens", ""},
		"calls before a stop": {"tool_calls", "", []string{"x"}, "tool_use", ""},
	} {
		reason, at := stopReason(called(&messagesMore{stops: c.stops}), &reply{Result: &schemas.Result{End: c.end}, Finish: c.finish})
		if *reason != c.want || (at == nil) != (c.wantAt == "") || at != nil && *at != c.wantAt {
			t.Errorf("%s: %s, %v", name, *reason, at)
		}
	}
}

// tokenizerFake answers for the tokenizer of model tiny: a token per message and tool.
func tokenizerFake(k *fake) {
	k.t.Helper()
	_, err := k.nc.Subscribe(tokenizer.Subject("tiny"), func(m *nats.Msg) {
		q, reply := new(schemas.RenderRequest), &schemas.RenderReply{Header: schemas.H()}
		if err := tokenizer.Unpack(m.Data, q); err != nil {
			k.t.Error(err)
			return
		}
		if string(q.ToolChoice) == `"required"` {
			reply.Failure = &schemas.Failure{Code: schemas.CodeInvalid, Param: "tool_choice", Message: "cannot be constrained"}
		}
		reply.Tokens = make(schemas.Tokens, len(q.Messages)+len(q.Tools)+len(strings.Fields(q.Text)))
		if q.Text == "bad" {
			reply.Failure = &schemas.Failure{Code: schemas.CodeInvalid, Param: "prompt", Message: "no"}
		}
		b, err := tokenizer.Pack(reply)
		if err != nil {
			k.t.Error(err)
			return
		}
		_ = m.Respond(b)
	})
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.nc.Flush(); err != nil {
		k.t.Fatal(err)
	}
}

func TestMessages(t *testing.T) {
	k := newFake(t, Options{Models: []Model{{Name: "tiny"}}})
	k.scripts["hi"] = hello
	k.scripts["bad"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
		k.failed(r, schemas.Failure{Code: schemas.CodeTooLong, Message: "too long", Param: "messages"})
	}
	ask := func(text, rest string) string {
		return `{"model":"tiny","max_tokens":16,"messages":[{"role":"user","content":"` + text + `"}]` + rest + `}`
	}
	a := k.post("/v1/messages?beta=true", ask("hi", ""), "anthropic-version", "2023-06-01", "anthropic-beta", "x")
	m := a.object(t)
	if a.status != 200 || at(m, "type") != "message" || at(m, "content", 0, "text") != "Héllo \"you\"\n" || at(m, "stop_reason") != "end_turn" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if at(m, "usage", "input_tokens") != 3.0 || at(m, "usage", "cache_read_input_tokens") != 7.0 || at(m, "usage", "output_tokens") != 5.0 {
		t.Errorf("usage is %v of 10 prompt tokens, 7 cached", at(m, "usage"))
	}
	got := within(t, k.turns)
	if got.MaxTokens == nil || *got.MaxTokens != 16 || got.Metadata != nil || got.Stream != nil {
		t.Errorf("the turn is %+v", got)
	}
	a = k.post("/v1/messages", ask("hi", `,"stream":true`))
	events, _ := a.events(t)
	if a.status != 200 || !strings.HasPrefix(a.body, "event: message_start\ndata: ") || len(events) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if !strings.HasSuffix(a.body, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n") || strings.Count(a.body, "text_delta") != 2 {
		t.Errorf("the stream is %s", a.body)
	}
	for body, want := range map[string]struct {
		status int
		kind   string
	}{
		ask("bad", ""):                           {400, "invalid_request_error"},
		ask("hi", `,"nope":1`):                   {400, "invalid_request_error"},
		`{"messages":[]}`:                        {400, "invalid_request_error"},
		`{"messages"`:                            {400, "invalid_request_error"},
		`{"model":"m","x":"\xff` + "\xff" + `"}`: {400, "invalid_request_error"},
	} {
		a := k.post("/v1/messages", body)
		m := a.object(t)
		if a.status != want.status || at(m, "type") != "error" || at(m, "error", "type") != want.kind || at(m, "error", "message") == "" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}

// TestStreamsBeforeTheFirstToken: a stream begins with its first events while nothing
// is there yet, and is kept alive in the way of its API.
func TestStreamsBeforeTheFirstToken(t *testing.T) {
	k := newFake(t, Options{KeepAlive: 20 * time.Millisecond})
	k.scripts["late"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
		time.AfterFunc(100*time.Millisecond, func() { hello(k, r, nil) })
	}
	for path, c := range map[string]struct{ body, begin, alive, end string }{
		"/v1/messages":  {`{"max_tokens":9,"stream":true,"messages":[{"role":"user","content":"late"}]}`, "event: message_start\n", "event: ping\n", "event: message_stop\n"},
		"/v1/responses": {`{"stream":true,"input":"late"}`, "event: response.created\n", ": keep-alive\n\n", "event: response.completed\n"},
	} {
		a := k.post(path, c.body)
		if !strings.HasPrefix(a.body, c.begin) || strings.Count(a.body, c.alive) < 2 || strings.Count(a.body, c.begin) != 1 || !strings.Contains(a.body, c.end) {
			t.Errorf("%s: %q", path, a.body)
		}
		if strings.LastIndex(a.body, c.alive) > strings.Index(a.body, c.end) {
			t.Errorf("%s goes on behind its end: %q", path, a.body)
		}
	}
}

func TestCounting(t *testing.T) {
	k := newFake(t, Options{Models: []Model{{Name: "tiny"}}, Context: 4096})
	tokenizerFake(k)
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/messages/count_tokens", `{"model":"tiny","system":"s","messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}}`, 200, `{"input_tokens":3}`},
		{"/v1/messages/count_tokens?beta=true", `{"model":"default","messages":[{"role":"user","content":"x"}]}`, 200, `{"input_tokens":1}`},
		{"/v1/messages/count_tokens", `{"model":"gone","messages":[{"role":"user","content":"x"}]}`, 404, `{"type":"error","error":{"type":"not_found_error","message":"model \"gone\" is not served here; served are \"tiny\""}}`},
		{"/v1/messages/count_tokens", `{"messages":[]}`, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: at least one message is required"}}`},
		{"/v1/responses/input_tokens", `{"instructions":"i","input":"x"}`, 200, `{"object":"response.input_tokens","input_tokens":2}`},
		{"/v1/responses/input_tokens", `{"previous_response_id":"resp_a.b.0","input":"x"}`, 400, `previous_response_id`},
		{"/tokenize", `{"prompt":"` + strings.Repeat("word ", 300_000) + `"}`, 200, `{"count":300000,`},
		{"/tokenize", `{"prompt":"a b c"}`, 200, `{"count":3,"max_model_len":4096,"tokens":[0,0,0],"token_strs":null}`},
		{"/tokenize", `{"messages":[{"role":"user","content":"x"}]}`, 200, `{"count":1,"max_model_len":4096,"tokens":[0],"token_strs":null}`},
		{"/tokenize", `{}`, 400, `give either prompt or messages`},
		{"/tokenize", `{"prompt":"bad"}`, 400, `"no"`},
		{"/tokenize", `{"prompt":"x","return_token_strs":true}`, 400, `return_token_strs`},
	} {
		a := k.post(c.path, c.body)
		if a.status != c.status || !strings.Contains(a.body, c.want) {
			t.Errorf("%s %.200s: %d %.200s", c.path, c.body, a.status, a.body)
		}
	}
}

func FuzzMessagesBody(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":1,"system":[{"type":"text","text":"a"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"}],"is_error":true}]}]}`))
	f.Add([]byte(`{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{}},{"type":"thinking","thinking":"x","signature":""}]}]}`))
	f.Add([]byte(`{"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"},"messages":[{"role":"user","content":null}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		q := new(messagesRequest)
		if turns.DecodeRequest(body, q) != nil {
			return
		}
		turn, e := q.turn(messagesOptions{thinks: true})
		if e != nil {
			if e.Status != 400 || e.Message == "" {
				t.Errorf("refused with %+v", e)
			}
			return
		}
		checkTurn(t, turn)
	})
}

// checkTurn: what a translation yields is a turn that can be published, with
// messages that a template can read.
func checkTurn(t *testing.T, turn *schemas.Turn) {
	t.Helper()
	if len(turn.Messages) == 0 {
		t.Error("a turn without messages")
	}
	for _, raw := range turn.Messages {
		var m struct{ Role string }
		if err := json.Unmarshal(raw, &m); err != nil || m.Role == "" {
			t.Errorf("message %s: %v", raw, err)
		}
	}
	if err := turns.CheckTurn(turn); err != nil {
		t.Error(err)
	}
	if _, err := json.Marshal(turn); err != nil {
		t.Error(err)
	}
}
