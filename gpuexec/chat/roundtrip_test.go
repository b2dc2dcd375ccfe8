package chat

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// TestParserReadsTemplates: what a family's template writes of an answer, its parser
// reads as that answer: text, reasoning and calls.
func TestParserReadsTemplates(t *testing.T) {
	tools := []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"do_it","description":"d","parameters":{"type":"object","properties":{
		"s":{"type":"string"},"n":{"type":"integer"},"o":{"type":"object"},"b":{"type":"boolean"},"l":{"type":"array"},"z":{"type":"null"}}}}}`)}
	for _, f := range Families() {
		source, err := os.ReadFile(filepath.Join("testdata", "families", string(f)+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		template, err := Compile(string(source))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(string(f), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				user := json.RawMessage(`{"role":"user","content":"go"}`)
				answer := drawAnswer(rt, f)
				render := func(generate bool, messages ...json.RawMessage) string {
					text, err := template.Render(Input{Messages: messages, Tools: tools, AddGenerationPrompt: generate, BOS: "<s>", EOS: "</s>"})
					if err != nil {
						rt.Fatal(err)
					}
					return text
				}
				prompt := render(true, user)
				text, ok := strings.CutPrefix(render(false, user, answer), prompt)
				if !ok {
					rt.Fatalf("the answer does not follow the prompt %q", prompt)
				}
				for _, end := range []string{"\n", "<|im_end|>", "<|eot_id|>", "</s>", "<｜end▁of▁sentence｜>"} {
					text = strings.TrimSuffix(text, end)
				}
				p := NewParser(Spec{Family: f, Tools: true, Strings: StringParameters(f, tools)}, "job")
				p.Add(text)
				p.End()
				got, _, err := schemas.CanonicalMessage(p.Message())
				if err != nil {
					rt.Fatal(err)
				}
				want, _, err := schemas.CanonicalMessage(answer)
				if err != nil {
					rt.Fatal(err)
				}
				if string(got) != string(want) {
					rt.Fatalf("%s is written as\n%s\nwhich is read as\n%s", want, text, got)
				}
			})
		})
	}
}

// drawAnswer draws an assistant message with or without calls.
func drawAnswer(t *rapid.T, f Family) json.RawMessage {
	word := rapid.SampledFrom([]string{"yes", "서울", "😀", "a < b", `"q"`, "{", "</", "\\n", "<b>", "1", "[x]", "true"})
	text := func(name string) string { return strings.Join(rapid.SliceOfN(word, 1, 4).Draw(t, name), " ") }
	m := map[string]any{"role": "assistant", "content": ""}
	n := rapid.IntRange(0, 3).Draw(t, "calls")
	if n == 0 || f != Llama3 && rapid.Bool().Draw(t, "text before calls") { // Llama's answers are one or the other
		m["content"] = "I say " + text("content")
	}
	if f == Llama3 {
		n = min(n, 1)
	}
	var calls []any
	for i := range n {
		arguments := map[string]any{}
		for _, a := range []struct {
			key   string
			value any
		}{
			{"s", text("s") + "\n" + text("more")},
			{"n", rapid.IntRange(-5, 1e9).Draw(t, "n")},
			{"o", map[string]any{"k": text("k"), "l": []any{1, nil}}},
			{"b", true},
			{"l", []any{}},
			{"z", nil},
		} {
			if rapid.Bool().Draw(t, a.key) {
				arguments[a.key] = a.value
			}
		}
		id := fmt.Sprintf("functions.do_it:%d", i)
		if f == Mistral {
			id = fmt.Sprintf("abcdefgh%d", i)
		}
		a, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, map[string]any{"id": id, "type": "function", "function": map[string]any{"name": "do_it", "arguments": string(a)}})
	}
	if n > 0 {
		m["tool_calls"] = calls
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
