package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// responded is what a Responses body becomes.
func responded(t *testing.T, body string) (*schemas.Turn, *apiError) {
	t.Helper()
	q := new(responsesRequest)
	if err := turns.DecodeRequest([]byte(body), q); err != nil {
		return nil, ofError(err)
	}
	return q.turn(true, true)
}

func TestResponsesTranslation(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"a string": {
			`{"instructions":"Be brief.","input":"Hi"}`,
			`{"role":"system","content":"Be brief."}
{"role":"user","content":"Hi"}`,
		},
		"messages": {
			`{"input":[{"role":"developer","content":"d"},{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
			 {"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"c","annotations":[],"logprobs":[]}]},{"role":"user","content":"e"}]}`,
			`{"role":"developer","content":"d"}
{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}
{"role":"assistant","content":"c"}
{"role":"user","content":"e"}`,
		},
		"an answer of reasoning, text and calls is one message": {
			`{"input":[{"role":"user","content":"x"},
			 {"type":"reasoning","id":"rs","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},
			 {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look. "}]},
			 {"type":"function_call","id":"fc_1","call_id":"c1","name":"read","arguments":"{\"a\": 1}","status":"completed"},
			 {"type":"message","role":"assistant","content":"And more."},
			 {"type":"function_call","call_id":"c2","name":"now","arguments":"{}"},
			 {"type":"function_call_output","call_id":"c1","output":"one"},
			 {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"},{"type":"input_image","image_url":"data:image/png;base64,AA","detail":"low"}]}]}`,
			`{"role":"user","content":"x"}
{"role":"assistant","content":"I look. And more.","reasoning_content":"Hm.","tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"a\": 1}"}},{"id":"c2","type":"function","function":{"name":"now","arguments":"{}"}}]}
{"role":"tool","content":"one","tool_call_id":"c1"}
{"role":"tool","content":[{"type":"text","text":"two"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA","detail":"low"}}],"tool_call_id":"c2"}`,
		},
		"calls without text": {
			`{"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"},
			 {"type":"function_call","call_id":"d","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"d","output":"s"}]}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}
{"role":"tool","content":"r","tool_call_id":"c"}
{"role":"assistant","content":null,"tool_calls":[{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]}
{"role":"tool","content":"s","tool_call_id":"d"}`,
		},
		"two answers": {
			`{"input":[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},{"type":"reasoning","id":"r","summary":[],"encrypted_content":"?"},{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"role":"user","content":"c"}]}`,
			`{"role":"assistant","content":"a"}
{"role":"assistant","content":"b"}
{"role":"assistant","content":"no"}
{"role":"user","content":"c"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			turn, e := responded(t, c.body)
			if e != nil {
				t.Fatal(e.Message)
			}
			if got := lines(turn.Messages); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestResponsesParameters(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"sampling": {
			`{"input":"x","max_output_tokens":9,"temperature":1.5,"top_p":0.9,"user":"u","metadata":{"a":"b"},"prompt_cache_key":"k"}`,
			`{"max_completion_tokens":9,"temperature":1.5,"top_p":0.9,"metadata":{"a":"b"},"user":"u","prompt_cache_key":"k"}`,
		},
		"tools": {
			`{"input":"x","tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},{"type":"function","name":"g","parameters":null}],"tool_choice":"required","parallel_tool_calls":false}`,
			`{"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}},{"type":"function","function":{"name":"g"}}],"tool_choice":"required","parallel_tool_calls":false}`,
		},
		"a certain tool": {
			`{"input":"x","tool_choice":{"type":"function","name":"f"}}`, `{"tool_choice":{"type":"function","function":{"name":"f"}}}`,
		},
		"allowed tools": {
			`{"input":"x","tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]}}`,
			`{"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]}}}`,
		},
		"a schema": {
			`{"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true},"verbosity":"low"}}`,
			`{"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}}}`,
		},
		"text":         {`{"input":"x","text":{"format":{"type":"text"}}}`, `{}`},
		"no reasoning": {`{"input":"x","reasoning":{"effort":"none"}}`, `{"chat_template_kwargs":{"enable_thinking":false}}`},
		"reasoning":    {`{"input":"x","reasoning":{"effort":"high","summary":"auto"}}`, `{}`},
		"of OpenAI's service": {
			`{"input":"x","include":["reasoning.encrypted_content"],"store":false,"truncation":"auto","service_tier":"auto","max_tool_calls":3,"client_metadata":{"x-codex-installation-id":"1"}}`, `{}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			turn, e := responded(t, c.body)
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
}

func TestResponsesRefusals(t *testing.T) {
	for body, want := range map[string]string{
		`{}`:            "input",
		`{"input":[]}`:  "input",
		`{"input":7}`:   "input",
		`{"input":[7]}`: "input[0]",
		`{"input":[{"role":"bot","content":"x"}]}`:                                                 "input[0].role",
		`{"input":[{"role":"user","content":"x","colour":1}]}`:                                     "input[0].colour",
		`{"input":[{"role":"user"}]}`:                                                              "input[0].content",
		`{"input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}`:              "input[0].content[0].type",
		`{"input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`:             "input[0].content[0].image_url",
		`{"input":[{"role":"assistant","content":[{"type":"input_image","image_url":"data:,"}]}]}`: "input[0].content",
		`{"input":[{"type":"item_reference","id":"msg_1"}]}`:                                       "input[0].type",
		`{"input":[{"type":"web_search_call","id":"w"}]}`:                                          "input[0].type",
		`{"input":[{"type":"function_call","name":"f","arguments":"{}"}]}`:                         "input[0]",
		`{"input":[{"type":"function_call_output","output":"x"}]}`:                                 "input[0].call_id",
		`{"input":[{"type":"function_call_output","call_id":"c"}]}`:                                "input[0].output",
		`{"input":"x","nothing":1}`:                                                                "nothing",
		`{"input":"x","temperature":3}`:                                                            "temperature",
		`{"input":"x","max_output_tokens":0}`:                                                      "max_output_tokens",
		`{"input":"x","background":true}`:                                                          "background",
		`{"input":"x","conversation":"conv_1"}`:                                                    "conversation",
		`{"input":"x","prompt":{"id":"p"}}`:                                                        "prompt",
		`{"input":"x","top_logprobs":3}`:                                                           "top_logprobs",
		`{"input":"x","tools":[{"type":"web_search"}]}`:                                            "tools[0].type",
		`{"input":"x","tools":[{"type":"function"}]}`:                                              "tools[0].name",
		`{"input":"x","tools":[{"type":"function","name":"f","colour":1}]}`:                        "tools[0].colour",
		`{"input":"x","tool_choice":{"type":"mcp"}}`:                                               "tool_choice.type",
		`{"input":"x","text":{"format":{"type":"xml"}}}`:                                           "text.format.type",
		`{"input":"x","reasoning":"much"}`:                                                         "reasoning",
	} {
		_, e := responded(t, body)
		if e == nil || e.Status != 400 || e.Param != want || e.Message == "" {
			t.Errorf("%s: %+v, want param %q", body, e, want)
		}
	}
}

func TestResponsesEvents(t *testing.T) {
	pieces, r := said()
	temperature, instructions := 0.5, "Be brief."
	c := called(&responsesMore{digest: textDigest(&instructions), req: &responsesRequest{
		Instructions: &instructions, Temperature: &temperature, Metadata: json.RawMessage(`{"k":"v"}`),
		Tools: []json.RawMessage{json.RawMessage(`{"type":"function","name":"read","parameters":{},"strict":true}`)},
	}})
	golden(t, "responses_stream.txt", spoken(t, responses{}, c, pieces, r, nil))
	golden(t, "responses_whole.json", indented(t, responses{}.whole(c, r)))
	plainCall := called(&responsesMore{digest: "0", req: &responsesRequest{}})
	golden(t, "responses_failed.txt", spoken(t, responses{}, plainCall, pieces[:1], nil, ofError(turns.ErrUnavailable)))
	empty := ""
	cut := &reply{Result: &schemas.Result{Session: "s1", Turn: "t1", Model: "tiny"}, Message: message{Content: &empty}, Finish: "length"}
	golden(t, "responses_empty.txt", spoken(t, responses{}, plainCall, nil, cut, nil))
}

// TestResponsesStreamEqualsWhole: the last event of a stream has what a whole
// response has.
func TestResponsesStreamEqualsWhole(t *testing.T) {
	pieces, r := said()
	c := called(&responsesMore{digest: "0", req: &responsesRequest{}})
	stream := spoken(t, responses{}, c, pieces, r, nil)
	last := strings.TrimSpace(stream[strings.LastIndex(stream, "data: ")+len("data: "):])
	var event struct {
		Response json.RawMessage `json:"response"`
		Seq      int             `json:"sequence_number"`
	}
	if err := json.Unmarshal([]byte(last), &event); err != nil {
		t.Fatal(err)
	}
	whole, e := plain(responses{}.whole(c, r))
	if e != nil {
		t.Fatal(e.Message)
	}
	if string(whole) != string(event.Response) {
		t.Errorf("whole  %s\nstream %s", whole, event.Response)
	}
	if n := strings.Count(stream, "event: "); event.Seq != n-1 {
		t.Errorf("the last of %d events has number %d", n, event.Seq)
	}
}

func TestResponses(t *testing.T) {
	k := newFake(t, Options{Models: []Model{{Name: "tiny"}}})
	k.scripts["hi"] = hello
	k.scripts["gone"] = func(k *fake, r turns.Ref, _ *schemas.Turn) {
		k.failed(r, schemas.Failure{Code: schemas.CodeNeedFull, Message: "no", Param: "weir.known"})
	}
	a := k.post("/v1/responses", `{"model":"tiny","instructions":"Be brief.","input":"hi"}`)
	m := a.object(t)
	id, _ := at(m, "id").(string)
	if a.status != 200 || !strings.HasPrefix(id, "resp_") || at(m, "output", 0, "content", 0, "text") != "Héllo \"you\"\n" || at(m, "status") != "completed" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if at(m, "usage", "input_tokens") != 10.0 || at(m, "usage", "input_tokens_details", "cached_tokens") != 7.0 || at(m, "usage", "total_tokens") != 15.0 {
		t.Errorf("usage is %v", at(m, "usage"))
	}
	first := within(t, k.turns)
	ref := within(t, k.refs)
	if len(first.Messages) != 2 {
		t.Errorf("the first turn has %s", first.Messages)
	}
	stored := k.do("GET", "/v1/responses/"+id, nil)
	if s := stored.object(t); stored.status != 200 || at(s, "id") != id || at(s, "output", 0, "content", 0, "text") != "Héllo \"you\"\n" {
		t.Errorf("stored: %d %s", stored.status, stored.body)
	}
	// The next turn continues it with its own input only, whether the instructions
	// are repeated or not.
	for _, rest := range []string{"", `"instructions":"Be brief.",`} {
		a = k.post("/v1/responses", `{`+rest+`"previous_response_id":"`+id+`","stream":true,"input":[{"role":"user","content":"hi"}]}`)
		if a.status != 200 || !strings.HasPrefix(a.body, "event: response.created\n") || !strings.Contains(a.body, "event: response.completed\n") {
			t.Errorf("%d %s", a.status, a.body)
		}
		next, where := within(t, k.turns), within(t, k.refs)
		if len(next.Messages) != 1 || next.Weir.Known == "" || where.Session != ref.Session || where.Turn == ref.Turn {
			t.Errorf("the next turn is %+v in %+v after %+v", next, where, ref)
		}
	}
	for body, want := range map[string]struct {
		status      int
		code, param string
	}{
		`{"previous_response_id":"` + id + `","instructions":"Other.","input":"hi"}`: {400, "invalid_request", "instructions"},
		`{"previous_response_id":"` + id + `","input":"gone"}`:                       {400, "need_full", "previous_response_id"},
		`{"previous_response_id":"resp_x.y.0","input":"hi"}`:                         {400, "previous_response_not_found", "previous_response_id"},
		`{"previous_response_id":"chatcmpl-1","input":"hi"}`:                         {400, "previous_response_not_found", "previous_response_id"},
		`{"input":"hi","stream_options":{"include_obfuscation":false}}`:              {400, "invalid_request", "stream_options"},
		`{"input":"hi","nope":1}`:                                                    {400, "unknown_parameter", "nope"},
	} {
		a := k.post("/v1/responses", body)
		if e := a.object(t); a.status != want.status || at(e, "error", "code") != want.code || at(e, "error", "param") != want.param {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for path, status := range map[string]int{
		"/v1/responses/resp_x.y.0": 404, "/v1/responses/nothing": 404, "/v1/responses/" + id + "?stream=true": 400, "/v1/responses/compact": 404,
	} {
		if a := k.do("GET", path, nil); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := k.post("/v1/responses/compact", `{"model":"tiny","input":"hi"}`); a.status != 404 {
		t.Errorf("compact: %d %s", a.status, a.body)
	}
}

func FuzzResponsesBody(f *testing.F) {
	f.Add([]byte(`{"instructions":"i","input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:,"}]},{"type":"reasoning","content":[{"text":"x"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"}]}`))
	f.Add([]byte(`{"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]},"text":{"format":{"type":"json_object"}},"reasoning":{"effort":"none"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		q := new(responsesRequest)
		if turns.DecodeRequest(body, q) != nil {
			return
		}
		turn, e := q.turn(true, true)
		if e != nil {
			if e.Status != 400 || e.Message == "" {
				t.Errorf("refused with %+v", e)
			}
			return
		}
		checkTurn(t, turn)
	})
}
