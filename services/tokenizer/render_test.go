package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
)

// renderer has the null engine's alphabet, in which every byte is a token.
func renderer(t testing.TB, template string, change ...func(*model.Model)) *Renderer {
	t.Helper()
	m := &model.Model{Name: "m", Engine: model.EngineLlama, Template: template, Vocab: nullengine.Vocab{}, EOS: "</s>"}
	for _, c := range change {
		c(m)
	}
	r, err := New(m, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func familyTemplate(t testing.TB, name string) string {
	t.Helper()
	if name == "default" {
		return chat.Fallback
	}
	b, err := os.ReadFile(filepath.Join("..", "..", "gpuexec", "chat", "testdata", "families", name+".jinja"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func list(t testing.TB, array string) []json.RawMessage {
	t.Helper()
	var out []json.RawMessage
	if err := json.Unmarshal([]byte(array), &out); err != nil {
		t.Fatalf("%s: %v", array, err)
	}
	return out
}

func rendered(t testing.TB, r *Renderer, req schemas.RenderRequest) schemas.RenderReply {
	t.Helper()
	reply := r.Render(&req)
	if reply.Failure != nil {
		t.Fatalf("%+v", reply.Failure)
	}
	return reply
}

// plainTokens is text in the null engine's alphabet.
func plainTokens(t testing.TB, text string) []int32 {
	t.Helper()
	toks, err := nullengine.Vocab{}.Tokenize(text, false, true)
	if err != nil {
		t.Fatal(err)
	}
	return toks
}

const (
	weatherTool = `{"type":"function","function":{"name":"weather","description":"오늘 날씨","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}}`
	timeTool    = `{"type":"function","function":{"name":"time","parameters":{"type":"object"}}}`
)

func TestToolChoice(t *testing.T) {
	tools := `[` + weatherTool + `,` + timeTool + `]`
	for _, c := range []struct {
		name, tools, choice string
		parse               string // part of Parse
		shown               string // part of the text; "-" when no tool may be shown
		param               string // of the failure
		text                string // part of its message
	}{
		{name: "auto", tools: tools, parse: "hermes+tools", shown: "오늘 날씨"},
		{name: "null", tools: tools, choice: `null`, parse: "hermes+tools", shown: "오늘 날씨"},
		{name: "none stays in the prompt", tools: tools, choice: `"none"`, parse: "hermes", shown: "오늘 날씨"},
		{name: "no tools", tools: `[]`, choice: `"auto"`, parse: "hermes", shown: "-"},
		{name: "allowed", tools: tools, choice: `{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"time"}}]}}`, parse: "hermes+tools", shown: `"time"`},
		{name: "unknown word", tools: tools, choice: `"maybe"`, param: "tool_choice", text: `"maybe"`},
		{name: "no object", tools: tools, choice: `[1]`, param: "tool_choice", text: "must be"},
		{name: "unknown function", tools: tools, choice: `{"type":"function","function":{"name":"nope"}}`, param: "tool_choice", text: `"nope"`},
		{name: "allowed without mode", tools: tools, choice: `{"type":"allowed_tools","allowed_tools":{"tools":[]}}`, param: "tool_choice.allowed_tools", text: "mode"},
		{name: "required without tools", tools: `[]`, choice: `"required"`, param: "tool_choice", text: "no tools"},
		{name: "custom tool", tools: `[{"type":"custom","custom":{"name":"x"}}]`, param: "tools[0].type", text: "custom"},
		{name: "no name", tools: `[{"type":"function","function":{}}]`, param: "tools[0].function.name", text: "name"},
		{name: "no object", tools: `[7]`, param: "tools[0]", text: "object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := renderer(t, chat.Fallback)
			req := schemas.RenderRequest{Messages: list(t, `[{"role":"user","content":"q"}]`), Tools: list(t, c.tools), ToolChoice: json.RawMessage(c.choice)}
			reply := r.Render(&req)
			if c.param != "" {
				if f := reply.Failure; f == nil || f.Code != schemas.CodeInvalid || f.Param != c.param || !strings.Contains(f.Message, c.text) {
					t.Fatalf("failure %+v, want param %q with %q", f, c.param, c.text)
				}
				return
			}
			if reply.Failure != nil || !strings.HasPrefix(reply.Parse, c.parse) || strings.Contains(reply.Parse, "tools") != strings.Contains(c.parse, "tools") {
				t.Fatalf("parse %q, failure %+v", reply.Parse, reply.Failure)
			}
			if c.shown == "-" {
				c.shown = "\nq<|im_end|>"
				if strings.Contains(reply.Text, "<tools>") {
					t.Errorf("text %q shows tools", reply.Text)
				}
			}
			if !strings.Contains(reply.Text, c.shown) {
				t.Errorf("text %q lacks %q", reply.Text, c.shown)
			}
			if c.name == "allowed" && strings.Contains(reply.Text, "weather") {
				t.Errorf("text %q shows a tool that is not allowed", reply.Text)
			}
		})
	}
}

func TestToolsWithoutTemplate(t *testing.T) {
	r := renderer(t, `{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}{% endfor %}`)
	req := schemas.RenderRequest{Messages: list(t, `[{"role":"user","content":"q"}]`), Tools: list(t, `[`+weatherTool+`]`)}
	if f := r.Render(&req).Failure; f == nil || f.Param != "tools" || f.Code != schemas.CodeInvalid {
		t.Errorf("failure %+v, want param tools", f)
	}
	req.ToolChoice = json.RawMessage(`"none"`)
	if reply := rendered(t, r, req); reply.Text != "<|im_start|>user: q" || reply.Parse != "hermes" {
		t.Errorf("text %q, parse %q", reply.Text, reply.Parse)
	}
}

// Reasoning that the prompt has opened is told to the parser, but not where a
// grammar leaves no room for it.
func TestOpenReasoning(t *testing.T) {
	r := renderer(t, familyTemplate(t, "deepseek"))
	req := schemas.RenderRequest{Messages: list(t, `[{"role":"user","content":"q <think>"}]`), Kwargs: json.RawMessage(`{"thinking":true}`)}
	if reply := rendered(t, r, req); reply.Parse != "deepseek+think" {
		t.Errorf("parse %q", reply.Parse)
	}
	req.ResponseFormat = json.RawMessage(`{"type":"json_object"}`)
	if reply := rendered(t, r, req); reply.Parse != "deepseek" || reply.Grammar == "" {
		t.Errorf("with a grammar: parse %q", reply.Parse)
	}
	req.ResponseFormat, req.Kwargs = nil, nil
	if reply := rendered(t, r, req); reply.Parse != "deepseek" {
		t.Errorf("without thinking: parse %q", reply.Parse)
	}
}

// The longest known text counts, wherever it stands in the list.
func TestLongestKnown(t *testing.T) {
	text := "abcdef"
	known := []schemas.KnownText{{Bytes: 5, Digest: digest("abcde")}, {Bytes: 2, Digest: digest("ab")}, {Bytes: 6, Digest: digest("other")}, {Bytes: 99, Digest: digest(text)}}
	if got := longest(known, text); got != 1 {
		t.Errorf("known text %d, want 1", got)
	}
	r := renderer(t, chat.Fallback)
	reply := rendered(t, r, schemas.RenderRequest{Text: text, Known: known})
	if reply.Matched != 1 || len(reply.Tokens) != 1 || reply.Parse != "" {
		t.Errorf("reply %+v", reply)
	}
}

func TestTooLong(t *testing.T) {
	m := &model.Model{Name: "m", Engine: model.EngineNull, Template: chat.Fallback, Vocab: nullengine.Vocab{}}
	r, err := New(m, 64)
	if err != nil {
		t.Fatal(err)
	}
	reply := r.Render(&schemas.RenderRequest{Text: strings.Repeat("a", 2000)})
	if f := reply.Failure; f == nil || f.Code != schemas.CodeTooLong || reply.Text != "" {
		t.Errorf("reply %+v", reply)
	}
}
