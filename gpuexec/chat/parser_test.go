package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// said is a message as tests write it.
type said struct {
	content, reasoning string
	calls              []string // NAME ARGUMENTS
}

func (s said) String() string {
	return fmt.Sprintf("content %q\nreasoning %q\ncalls %q", s.content, s.reasoning, s.calls)
}

// parse runs a parser over pieces of text, and checks that the deltas are the message.
func parse(t testing.TB, spec string, pieces ...string) said {
	t.Helper()
	s, err := ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	p := NewParser(s, "job")
	var got said
	ids := map[string]bool{}
	take := func(deltas []Delta) {
		for _, d := range deltas {
			if d.Content+d.Reasoning+d.Arguments+d.Name == "" {
				t.Fatalf("an empty delta: %+v", d)
			}
			got.content += d.Content
			got.reasoning += d.Reasoning
			if d.Call < 0 {
				if d.Arguments+d.Name+d.ID != "" {
					t.Fatalf("a call without an index: %+v", d)
				}
				continue
			}
			switch {
			case d.Call == len(got.calls) && d.Name != "" && d.ID != "":
				got.calls = append(got.calls, d.Name+" ")
				ids[d.ID] = true
			case d.Call != len(got.calls)-1 || d.Name != "" || d.ID != "":
				t.Fatalf("a delta of call %d behind %d calls: %+v", d.Call, len(got.calls), d)
			}
			got.calls[d.Call] += d.Arguments
		}
	}
	for _, piece := range pieces {
		take(p.Add(piece))
	}
	take(p.End())
	var m struct {
		Role      string
		Content   *string
		Reasoning string `json:"reasoning_content"`
		Calls     []struct {
			ID, Type string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(p.Message(), &m); err != nil || m.Role != "assistant" {
		t.Fatalf("%s: %v", p.Message(), err)
	}
	whole := said{reasoning: m.Reasoning}
	if m.Content != nil {
		whole.content = *m.Content
	} else if len(m.Calls) == 0 {
		t.Fatalf("no content and no calls: %s", p.Message())
	}
	for _, c := range m.Calls {
		whole.calls = append(whole.calls, c.Function.Name+" "+c.Function.Arguments)
		if c.Type != "function" || !ids[c.ID] && s.Family != Kimi {
			t.Fatalf("call %+v, ids %v", c, ids)
		}
	}
	if whole.String() != got.String() || p.Calls() != len(got.calls) {
		t.Fatalf("the deltas are\n%v\nthe message is\n%v", got, whole)
	}
	return got
}

// everyCut checks that no cut of text changes the message: in two at every byte, and
// into single bytes.
func everyCut(t testing.TB, spec, text string) said {
	t.Helper()
	want := parse(t, spec, text)
	for i := range len(text) + 1 {
		if got := parse(t, spec, text[:i], text[i:]); got.String() != want.String() {
			t.Fatalf("%q cut at %d:\n%v\nuncut:\n%v", text, i, got, want)
		}
	}
	if got := parse(t, spec, strings.Split(text, "")...); got.String() != want.String() {
		t.Fatalf("%q by characters:\n%v\nwhole:\n%v", text, got, want)
	}
	var bytes []string
	for i := range len(text) {
		bytes = append(bytes, text[i:i+1])
	}
	if got := parse(t, spec, bytes...); got.String() != want.String() {
		t.Fatalf("%q by bytes:\n%v\nwhole:\n%v", text, got, want)
	}
	return want
}

type parserCase struct {
	name, spec, text string
	want             said
}

func runCases(t *testing.T, cases []parserCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := everyCut(t, c.spec, c.text); got.String() != c.want.String() {
				t.Errorf("%s\n%q\n%v\nwant\n%v", c.spec, c.text, got, c.want)
			}
		})
	}
}

func TestHermes(t *testing.T) {
	const call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"
	runCases(t, []parserCase{
		{"text", "hermes+tools", "Hello, 안녕 😀\n", said{content: "Hello, 안녕 😀\n"}},
		{"only white space", "hermes+tools", " \n", said{content: " \n"}},
		{"call", "hermes+tools", call, said{calls: []string{`f {"x": 1}`}}},
		{"call without tools", "hermes", call, said{content: call}},
		{"text before and after", "hermes+tools", "I look.\n\n" + call + "\nDone.\n", said{content: "I look.\n\n\nDone.", calls: []string{`f {"x": 1}`}}},
		{"two calls", "hermes+tools", call + "\n" + call, said{calls: []string{`f {"x": 1}`, `f {"x": 1}`}}},
		{"one call at most", "hermes+tools+one", call + "\n" + call, said{calls: []string{`f {"x": 1}`}}},
		{"two in a block", "hermes+tools", "<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"g\",\"arguments\":{}}\n</tool_call>", said{calls: []string{`f {}`, `g {}`}}},
		{"a list in a block", "hermes+tools", `<tool_call>[{"name":"f","arguments":{}}, {"name":"g","arguments":{}}]</tool_call>`, said{calls: []string{`f {}`, `g {}`}}},
		{"no end marker", "hermes+tools", `<tool_call>{"name":"f","arguments":{"a":"b"}}`, said{calls: []string{`f {"a":"b"}`}}},
		{"next call without end marker", "hermes+tools", `<tool_call>{"name":"f","arguments":{}}<tool_call>{"name":"g"}`, said{calls: []string{`f {}`, `g {}`}}},
		{"braces and quotes in strings", "hermes+tools", `<tool_call>{"name":"f","arguments":{"c":"mkdir -p test/{a,b \"}\" </tool_call> \\"}}</tool_call>`, said{calls: []string{`f {"c":"mkdir -p test/{a,b \"}\" </tool_call> \\"}`}}},
		{"escapes stay", "hermes+tools", `<tool_call>{"name":"f","arguments":{"s":"\ud55c\uAD6D\n\/"}}</tool_call>`, said{calls: []string{`f {"s":"\ud55c\uAD6D\n\/"}`}}},
		{"characters", "hermes+tools", `<tool_call>{"name":"날씨","arguments":{"도시":"서울 😀"}}</tool_call>`, said{calls: []string{`날씨 {"도시":"서울 😀"}`}}},
		{"no arguments", "hermes+tools", `<tool_call>{"name":"f"}</tool_call>`, said{calls: []string{`f {}`}}},
		{"null arguments", "hermes+tools", `<tool_call>{"name":"f","arguments":null}</tool_call>`, said{calls: []string{`f {}`}}},
		{"empty arguments", "hermes+tools", `<tool_call>{"name":"f","arguments":""}</tool_call>`, said{calls: []string{`f {}`}}},
		{"arguments in a string", "hermes+tools", `<tool_call>{"name":"f","arguments":"{\"a\": \"\\n\"}"}</tool_call>`, said{calls: []string{`f {"a": "\n"}`}}},
		{"arguments that are a list", "hermes+tools", `<tool_call>{"name":"f","arguments":[1]}</tool_call>`, said{calls: []string{`f [1]`}}},
		{"arguments first", "hermes+tools", `<tool_call>{"arguments":{"name":"g","arguments":{}},"name":"f"}</tool_call>`, said{calls: []string{`f {"name":"g","arguments":{}}`}}},
		{"other members", "hermes+tools", `<tool_call>{"id":"7","type":"function","n":1.5e3,"name":"f","arguments":{},"z":[{"name":"h"}]}</tool_call>`, said{calls: []string{`f {}`}}},
		{"members twice", "hermes+tools", `<tool_call>{"name":"f","arguments":{"a":1},"arguments":{"b":2},"name":"g"}</tool_call>`, said{calls: []string{`f {"a":1}`}}},
		{"line feeds in strings", "hermes+tools", "<tool_call>{\"name\":\"f\",\"arguments\":{\"code\":\"a\n\tb\x01\"}}</tool_call>", said{calls: []string{`f {"code":"a\n\tb\u0001"}`}}},
		{"a brace too many", "hermes+tools", `<tool_call>{"name":"f","arguments":{"a":1}}}</tool_call>`, said{calls: []string{`f {"a":1}`}}},
		{"cut in arguments", "hermes+tools", `<tool_call>{"name":"f","arguments":{"a":"b`, said{calls: []string{`f {"a":"b`}}},
		{"cut before the name", "hermes+tools", `a <tool_call>{"nam`, said{content: `a <tool_call>{"nam`}},
		{"cut in the name", "hermes+tools", `<tool_call>{"name":"f`, said{content: `<tool_call>{"name":"f`}},
		{"cut in a marker", "hermes+tools", `a <tool_`, said{content: `a <tool_`}},
		{"cut in the end marker", "hermes+tools", `<tool_call>{"name":"f","arguments":{}}</tool`, said{calls: []string{`f {}`}}},
		{"a marker as a word", "hermes+tools", "the <tool_call> tag and <tool_call>x", said{content: "the <tool_call> tag and <tool_call>x"}},
		{"a marker, then a call", "hermes+tools", "<tool_call><tool_call>{\"name\":\"f\"}</tool_call>", said{content: "<tool_call>", calls: []string{"f {}"}}},
		{"not JSON", "hermes+tools", "<tool_call>{'name': 'f'}</tool_call>", said{content: "<tool_call>{'name': 'f'}</tool_call>"}},
		{"no name", "hermes+tools", `<tool_call>{"arguments":{}}</tool_call>`, said{content: `<tool_call>{"arguments":{}}</tool_call>`}},
		{"a name that is no string", "hermes+tools", `<tool_call>{"name":7}</tool_call>`, said{content: `<tool_call>{"name":7}</tool_call>`}},
		{"arguments break off", "hermes+tools", `<tool_call>{"name":"f","arguments":{"a":1, b:2}}</tool_call> ok`, said{content: `b:2}} ok`, calls: []string{`f {"a":1, `}}},
		{"end marker alone", "hermes+tools", "a </tool_call> b", said{content: "a </tool_call> b"}},
		{"html", "hermes+tools", "<b>x</b> <tool", said{content: "<b>x</b> <tool"}},
	})
}

func TestReasoning(t *testing.T) {
	const call = `<tool_call>{"name":"f","arguments":{}}</tool_call>`
	runCases(t, []parserCase{
		{"both tags", "hermes+tools", "<think>\nWhy?\n\n</think>\n\nSo.\n", said{reasoning: "Why?", content: "So.\n"}},
		{"opened by the prompt", "hermes+tools+think", "\nWhy?\n</think>\n\nSo.", said{reasoning: "Why?", content: "So."}},
		{"opened twice", "hermes+tools+think", "<think>Why?</think>So.", said{reasoning: "Why?", content: "So."}},
		{"never closed", "hermes+tools+think", "Why? ", said{reasoning: "Why?"}},
		{"empty", "hermes+tools", "<think>\n\n</think>\n\nSo.", said{content: "So."}},
		{"closed by the prompt and again", "hermes+tools", "\n</think>\nSo.", said{content: "So."}},
		{"two times", "hermes", "<think>a</think>\n<think>b</think>c", said{reasoning: "ab", content: "c"}},
		{"tags as words", "hermes+tools", "the <think> tag </think>", said{content: "the <think> tag </think>"}},
		{"a call behind it", "hermes+tools+think", "Why?\n</think>\n\n" + call, said{reasoning: "Why?", calls: []string{"f {}"}}},
		{"a drafted call", "hermes+tools+think", "I write " + call + " now.</think>So.", said{reasoning: "I write " + call + " now.", content: "So."}},
		{"a drafted call at its end", "hermes+tools+think", "I write\n" + call + "\n</think>" + call, said{reasoning: "I write\n" + call, calls: []string{"f {}"}}},
		{"a drafted call, no close", "hermes+tools+think", "I write " + call + " now.", said{reasoning: "I write " + call + " now."}},
		{"forgotten close", "hermes+tools+think", "I write.\n" + call + "\n" + call + "\n", said{reasoning: "I write.", calls: []string{"f {}", "f {}"}}},
		{"forgotten close, no end marker", "hermes+tools+think", "I write.\n" + `<tool_call>{"name":"f","arguments":{}}`, said{reasoning: "I write.", calls: []string{"f {}"}}},
		{"forgotten close, cut call", "hermes+tools+think", `I. <tool_call>{"name":"f","arguments":{"a`, said{reasoning: `I. <tool_call>{"name":"f","arguments":{"a`}},
		{"half a draft", "hermes+tools+think", `I <tool_call>{"name":"f", x}</think>So.`, said{reasoning: `I <tool_call>{"name":"f", x}`, content: "So."}},
		{"a draft, then a broken one", "hermes+tools+think", "I " + call + "<tool_call>x</think>So.", said{reasoning: "I " + call + "<tool_call>x", content: "So."}},
		{"characters", "hermes+think", "왜 😀?</think>\n그래서", said{reasoning: "왜 😀?", content: "그래서"}},
	})
}
