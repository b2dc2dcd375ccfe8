package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/grammar"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
)

// matches tells whether a grammar takes a whole text.
func matches(t testing.TB, g, text string) bool {
	t.Helper()
	parsed, err := grammar.Parse(g)
	if err != nil {
		t.Fatalf("%v\n%s", err, g)
	}
	return parsed.Match(text)
}

func TestForcedCalls(t *testing.T) {
	const (
		weather = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"x\", \"days\": 1}}\n</tool_call>"
		clock   = "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>"
		schema  = `{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}`
	)
	no := false
	for _, c := range []struct {
		name, choice, format string
		parallel             *bool
		takes, refuses       []string
		param                string
	}{
		{name: "auto", choice: `"auto"`},
		{name: "required", choice: `"required"`, takes: []string{weather, clock, weather + "\n" + clock}, refuses: []string{"words", `{"a":1}`}},
		{name: "one", choice: `"required"`, parallel: &no, takes: []string{weather, clock}, refuses: []string{weather + "\n" + clock}},
		{name: "named", choice: `{"type":"function","function":{"name":"time"}}`, takes: []string{clock}, refuses: []string{weather}},
		{name: "allowed", choice: `{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"time"}}]}}`, takes: []string{clock}, refuses: []string{weather}},
		{name: "format", choice: `"none"`, format: schema, takes: []string{`{"a":1}`}, refuses: []string{weather}},
		{name: "format or call", choice: `"auto"`, format: schema, takes: []string{`{"a":1}`, weather}, refuses: []string{"words", `{"b":1}`}},
		{name: "format and call", choice: `"required"`, format: schema, param: "tool_choice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := schemas.RenderRequest{
				Messages: list(t, `[{"role":"user","content":"q"}]`), Tools: list(t, `[`+weatherTool+`,`+timeTool+`]`),
				ToolChoice: json.RawMessage(c.choice), ResponseFormat: json.RawMessage(c.format), Parallel: c.parallel,
			}
			reply := renderer(t, chat.Fallback).Render(&req)
			if c.param != "" {
				if f := reply.Failure; f == nil || f.Param != c.param || !strings.Contains(f.Message, "leave one of them out") {
					t.Fatalf("failure %+v", f)
				}
				return
			}
			if reply.Failure != nil || (reply.Grammar == "") != (len(c.takes) == 0) {
				t.Fatalf("failure %+v, grammar %q", reply.Failure, reply.Grammar)
			}
			for _, text := range c.takes {
				if !matches(t, reply.Grammar, text) {
					t.Errorf("the grammar does not take %q\n%s", text, reply.Grammar)
				}
			}
			for _, text := range c.refuses {
				if matches(t, reply.Grammar, text) {
					t.Errorf("the grammar takes %q", text)
				}
			}
			if len(c.takes) == 0 {
				return
			}
			null := renderer(t, chat.Fallback, func(m *model.Model) { m.Engine = model.EngineNull })
			want := "tool_choice"
			if c.format != "" {
				want = "response_format"
			}
			if f := null.Render(&req).Failure; f == nil || f.Param != want || !strings.Contains(f.Message, "cannot constrain") {
				t.Errorf("an engine without constraints: %+v", f)
			}
		})
	}
}
