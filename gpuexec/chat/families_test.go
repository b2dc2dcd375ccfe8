package chat

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestCoder(t *testing.T) {
	fn := func(body string) string { return "<tool_call>\n<function=f>\n" + body + "</function>\n</tool_call>" }
	runCases(t, []parserCase{
		{"values", "hermes+tools", fn("<parameter=a>\n1\n</parameter>\n<parameter=b>\ntwo words\n</parameter>\n<parameter=c>\n{\"k\": [null]}\n</parameter>\n"), said{calls: []string{`f {"a":1,"b":"two words","c":{"k": [null]}}`}}},
		{"nothing", "hermes+tools", fn(""), said{calls: []string{"f {}"}}},
		{"lines", "hermes+tools", fn("<parameter=code>\n\nif a < b && c > d {\n\treturn \"x\\n\"\n}\n\n</parameter>\n"), said{calls: []string{`f {"code":"\nif a < b && c > d {\n\treturn \"x\\n\"\n}\n"}`}}},
		{"no line feeds", "hermes+tools", "<tool_call><function=f><parameter=a>x</parameter></function></tool_call>", said{calls: []string{`f {"a":"x"}`}}},
		{"no outer markers", "hermes+tools", "Look:\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>", said{content: "Look:", calls: []string{`f {"a":"x"}`}}},
		{"no outer begin", "hermes+tools", "<function=f>\n</function>\n</tool_call>", said{calls: []string{`f {}`}}},
		{"no end of a parameter", "hermes+tools", "<tool_call>\n<function=f>\n<parameter=a>\nx\n<parameter=b>\ny\n</function>\n</tool_call>", said{calls: []string{`f {"a":"x","b":"y"}`}}},
		{"no end of the function", "hermes+tools", "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</tool_call>", said{calls: []string{`f {"a":"x"}`}}},
		{"no end but the last", "hermes+tools", "<tool_call>\n<function=f>\n<parameter=a>\nx\n</tool_call>", said{calls: []string{`f {"a":"x"}`}}},
		{"no bracket behind names", "hermes+tools", "<tool_call>\n<function=f\n<parameter=a\nx\n</parameter>\n</function>\n</tool_call>", said{calls: []string{`f {"a":"x"}`}}},
		{"numbers that are none", "hermes+tools", fn("<parameter=a>\n007\n</parameter>\n<parameter=b>\n-\n</parameter>\n<parameter=c>\n1.5e3\n</parameter>\n<parameter=d>\ntrue\n</parameter>\n<parameter=e>\nTrue\n</parameter>\n"), said{calls: []string{`f {"a":"007","b":"-","c":1.5e3,"d":true,"e":"True"}`}}},
		{"date", "hermes+tools", fn("<parameter=a>\n2026-01-15\n</parameter>\n<parameter=b>\n\"quoted\"\n</parameter>\n<parameter=c>\n</parameter>\n"), said{calls: []string{`f {"a":"2026-01-15","b":"quoted","c":""}`}}},
		{"markers in a value", "hermes+tools", fn("<parameter=a>\n<b></parameter <tool_call>{}</tool_call>\n</parameter>\n"), said{calls: []string{`f {"a":"<b></parameter <tool_call>{}</tool_call>"}`}}},
		{"JSON inside", "hermes+tools", "<tool_call>\n<function=f>{\"a\": 1}</function></tool_call> ok", said{content: "ok", calls: []string{`f {"a": 1}`}}},
		{"cut in a value", "hermes+tools", "<tool_call>\n<function=f>\n<parameter=a>\nlong te", said{calls: []string{`f {"a":"long te`}}},
		{"cut between", "hermes+tools", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n", said{calls: []string{`f {"a":1`}}},
		{"a function as a word", "hermes+tools", "write <function=f> here", said{content: "write <function=f> here"}},
		{"two", "hermes+tools", fn("") + "\n" + fn("<parameter=a>\n1\n</parameter>\n"), said{calls: []string{"f {}", `f {"a":1}`}}},
		{"a list of two", "hermes+tools", "<tool_call>\n<function=f>\n</function>\n<function=g>\n</function>\n</tool_call>", said{calls: []string{"f {}", "g {}"}}},
		{"a fence", "hermes+tools", "<tool_call>\n```json\n{\"name\":\"f\",\"arguments\":{}}\n```\n</tool_call>", said{calls: []string{"f {}"}}},
	})
}

func TestStrings(t *testing.T) {
	tools := []json.RawMessage{
		json.RawMessage(`{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{
			"s":{"type":"string"},"n":{"type":"integer"},"u":{"type":["string","null"]},"b":{"type":"boolean"}}}}}`),
		json.RawMessage(`{"type":"function","function":{"name":"g"}}`),
		json.RawMessage(`7`),
	}
	for _, f := range Families() {
		if set := StringParameters(f, tools); (set != "") != (f == Coder || f == GLM) {
			t.Errorf("%s: %q", f, set)
		}
	}
	coder := Spec{Family: Coder, Tools: true, Strings: StringParameters(Coder, tools)}
	glm := Spec{Family: GLM, Tools: true, Strings: StringParameters(GLM, tools)}
	value := func(name, v string) string { return "<parameter=" + name + ">\n" + v + "\n</parameter>\n" }
	pair := func(name, v string) string {
		return "<arg_key>" + name + "</arg_key>\n<arg_value>" + v + "</arg_value>\n"
	}
	runCases(t, []parserCase{
		{"strings that look like JSON", coder.String(), "<function=f>\n" + value("s", "[1]") + value("n", "1") + value("u", "2") + value("b", "True") + "</function>", said{calls: []string{`f {"s":"[1]","n":1,"u":2,"b":true}`}}},
		{"others that do not", coder.String(), "<function=f>\n" + value("s", "None") + value("n", "None") + value("u", "Nonesuch") + value("b", "Tru") + "</function>", said{calls: []string{`f {"s":"None","n":null,"u":"Nonesuch","b":"Tru"}`}}},
		{"an empty one", coder.String(), "<function=f>\n" + value("s", "") + "</function>", said{calls: []string{`f {"s":""}`}}},
		{"GLM", glm.String(), "<tool_call>f\n" + pair("s", "10001") + pair("n", "3") + "</tool_call>", said{calls: []string{`f {"s":"10001","n":3}`}}},
	})
	// No parameter of another kind is ever taken for a string.
	for n := range 60 {
		var tools []json.RawMessage
		for i := range n {
			tools = append(tools, json.RawMessage(`{"function":{"name":"f`+strings.Repeat("x", i)+`","parameters":{"properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{}}}}}`))
		}
		set := bloomOf(StringParameters(GLM, tools))
		for i := range n {
			name := "f" + strings.Repeat("x", i)
			if !bloomHas(set, name, "a") || bloomHas(set, name, "b") || bloomHas(set, name, "c") {
				t.Fatalf("%d tools, parameters of tool %d", n, i)
			}
		}
	}
}

func TestLlama3(t *testing.T) {
	runCases(t, []parserCase{
		{"bare", "llama3+tools", `{"name": "f", "parameters": {"x": 1}}`, said{calls: []string{`f {"x": 1}`}}},
		{"marked", "llama3+tools", `<|python_tag|>{"type": "function", "name": "f", "parameters": {"x": "1"}}`, said{calls: []string{`f {"x": "1"}`}}},
		{"arguments", "llama3+tools", "\n" + `{"name": "f", "arguments": {}}`, said{calls: []string{`f {}`}}},
		{"function", "llama3+tools", `{"type": "function", "function": "f", "parameters": {}}`, said{calls: []string{`f {}`}}},
		{"semicolons", "llama3+tools", `<|python_tag|>{"name":"f","parameters":{}}; {"name":"g","parameters":{"a":";"}};{"name":"h"}`, said{calls: []string{`f {}`, `g {"a":";"}`, `h {}`}}},
		{"several", "llama3+tools", `{"name":"f","parameters":{}}` + "\n" + `{"name":"g","parameters":{}}`, said{calls: []string{`f {}`, `g {}`}}},
		{"marked twice", "llama3+tools", `<|python_tag|>{"name":"f","parameters":{}}<|python_tag|>{"name":"g","parameters":{}}`, said{calls: []string{`f {}`, `g {}`}}},
		{"a list", "llama3+tools", `<|python_tag|>[{"name":"f","parameters":{}}, {"name":"g","parameters":{}}]`, said{calls: []string{`f {}`, `g {}`}}},
		{"text behind", "llama3+tools", `{"name":"f","parameters":{}}` + "\n\nMore?", said{content: "More?", calls: []string{`f {}`}}},
		{"text before a bare one", "llama3+tools", `I call {"name":"f","parameters":{}}`, said{content: `I call {"name":"f","parameters":{}}`}},
		{"text before a marked one", "llama3+tools", `I call <|python_tag|>{"name":"f","parameters":{}}`, said{content: `I call`, calls: []string{`f {}`}}},
		{"other JSON", "llama3+tools", `{"name": "Bob", "age": 3}`, said{content: `{"name": "Bob", "age": 3}`}},
		{"other parameters", "llama3+tools", `{"name": "Bob", "parameters": [3]} x`, said{content: `{"name": "Bob", "parameters": [3]} x`}},
		{"JSON of no call", "llama3+tools", `{"a": {"name": "f", "parameters": {}}}`, said{content: `{"a": {"name": "f", "parameters": {}}}`}},
		{"code", "llama3+tools", `{ return x; }`, said{content: `{ return x; }`}},
		{"Python", "llama3+tools", `<|python_tag|>print({"name":"f","parameters":{}})`, said{content: `<|python_tag|>print({"name":"f","parameters":{}})`}},
		{"no tools", "llama3", `{"name": "f", "parameters": {"x": 1}}`, said{content: `{"name": "f", "parameters": {"x": 1}}`}},
		{"semicolon and text", "llama3+tools", `{"name":"f","parameters":{}}; done`, said{content: `; done`, calls: []string{`f {}`}}},
	})
}

func TestKimi(t *testing.T) {
	const begin, arg, end = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
	const section, over = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
	runCases(t, []parserCase{
		{"one", "kimi+tools", "Yes. " + section + begin + "functions.f:0" + arg + `{"x": "<|tool_call_end|>"}` + end + over, said{content: "Yes.", calls: []string{`f {"x": "<|tool_call_end|>"}`}}},
		{"two", "kimi+tools", section + begin + "functions.f:0" + arg + `{}` + end + begin + "functions.mcp.files-read:1" + arg + ` {"x": 1} ` + end + over, said{calls: []string{`f {}`, `mcp.files-read {"x": 1}`}}},
		{"white space", "kimi+tools", section + "\n" + begin + "\nfunctions.f:0\n" + arg + "\n{}\n" + end + "\n" + over + "\n", said{calls: []string{`f {}`}}},
		{"no section", "kimi+tools", begin + "functions.f:12" + arg + `{}` + end + " more", said{content: "more", calls: []string{`f {}`}}},
		{"singular", "kimi+tools", "<|tool_call_section_begin|>" + begin + "f:0" + arg + `{}` + end + "<|tool_call_section_end|>", said{calls: []string{`f {}`}}},
		{"no arguments", "kimi+tools", section + begin + "functions.f:0" + end + begin + "functions.g:1" + arg + end + over, said{calls: []string{`f {}`, `g {}`}}},
		{"noise in the section", "kimi+tools", section + " well " + begin + "functions.f:0" + arg + `{}` + end + over, said{content: " well", calls: []string{`f {}`}}},
		{"empty section", "kimi+tools", "So." + section + over, said{content: "So."}},
		{"no end", "kimi+tools", section + begin + "functions.f:0" + arg + `{}`, said{calls: []string{`f {}`}}},
		{"next without end", "kimi+tools", section + begin + "functions.f:0" + arg + `{}` + begin + "functions.g:1" + arg + `{}` + end, said{calls: []string{`f {}`, `g {}`}}},
		{"cut", "kimi+tools", section + begin + "functions.f:0" + arg + `{"a`, said{calls: []string{`f {"a`}}},
		{"cut in the id", "kimi+tools", section + begin + "functions.f", said{content: begin + "functions.f"}},
		{"a name with a colon", "kimi+tools", begin + "functions.a:b" + arg + `{}` + end, said{calls: []string{`a:b {}`}}},
		{"forgotten close", "kimi+tools+think", "I do. " + section + begin + "functions.f:0" + arg + `{}` + end + over, said{reasoning: "I do.", calls: []string{`f {}`}}},
		{"draft", "kimi+tools+think", "I do. " + section + begin + "functions.f:0" + arg + `{}` + end + over + "</think>Ok", said{reasoning: "I do. " + section + begin + "functions.f:0" + arg + `{}` + end + over, content: "Ok"}},
		{"JSON breaks", "kimi+tools", section + begin + "functions.f:0" + arg + `{"a" 1}` + end + over, said{content: "1}" + over, calls: []string{`f {"a" `}}},
	})
	s, _ := ParseSpec("kimi+tools")
	p := NewParser(s, "job")
	d := p.Add(section + begin + "functions.f:3" + arg + "{}")
	if len(d) != 1 || d[0].ID != "functions.f:3" {
		t.Errorf("%+v", d)
	}
}

func TestGLM(t *testing.T) {
	runCases(t, []parserCase{
		{"lines", "glm+tools", "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n<arg_key>y z</arg_key>\n<arg_value>a\nb</arg_value>\n</tool_call>", said{calls: []string{`f {"x":1,"y z":"a\nb"}`}}},
		{"no lines", "glm+tools", "<tool_call>f<arg_key>x</arg_key><arg_value>[]</arg_value></tool_call>", said{calls: []string{`f {"x":[]}`}}},
		{"no arguments", "glm+tools", "<tool_call>f\n</tool_call>\n<tool_call>g</tool_call>", said{calls: []string{"f {}", "g {}"}}},
		{"line before the name", "glm+tools", "<tool_call>\nf\n</tool_call>", said{calls: []string{"f {}"}}},
		{"values", "glm+tools", "<tool_call>f<arg_key>a</arg_key><arg_value></arg_value><arg_key>b</arg_key><arg_value>null</arg_value><arg_key>c</arg_key><arg_value> 한국 </arg_value><arg_key>d</arg_key><arg_value>{\"x\": \"</arg\"}</arg_value></tool_call>", said{calls: []string{`f {"a":"","b":null,"c":" 한국 ","d":{"x": "</arg"}}`}}},
		{"stray tags", "glm+tools", "<tool_call>f<arg_key><arg_key>a</arg_key></arg_key><arg_value>1</arg_value></arg_value></tool_call>", said{calls: []string{`f {"a":1}`}}},
		{"a marker as a word", "glm+tools", "the <tool_call> tag", said{content: "the <tool_call> tag"}},
		{"a word in markers", "glm+tools", "<tool_call>some words</tool_call>", said{content: "<tool_call>some words</tool_call>"}},
		{"a word on a line", "glm+tools", "<tool_call>word\nother</tool_call>", said{content: "<tool_call>word\nother</tool_call>"}},
		{"reasoning", "glm+tools", "\n<think>Why?</think>\n<tool_call>f</tool_call>", said{reasoning: "Why?", calls: []string{"f {}"}}},
		{"cut", "glm+tools", "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1", said{calls: []string{`f `}}},
	})
}

func TestDeepSeek(t *testing.T) {
	const begin, sep, end = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
	const section, over = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
	old := func(name, arguments string) string {
		return begin + "function" + sep + name + "\n```json\n" + arguments + "\n```" + end
	}
	runCases(t, []parserCase{
		{"V3", "deepseek+tools", "Ok." + section + old("f", `{"x": "`+"```"+`"}`) + "\n" + old("g", "{}") + over, said{content: "Ok.", calls: []string{"f {\"x\": \"```\"}", "g {}"}}},
		{"V3 on lines", "deepseek+tools", section + "\n" + old("f", "{\n  \"x\": 1\n}") + "\n" + over + "\n", said{calls: []string{"f {\n  \"x\": 1\n}"}}},
		{"V3.1", "deepseek+tools", section + begin + "f" + sep + `{"x":"서울"}` + end + begin + "g" + sep + "{}" + end + over, said{calls: []string{`f {"x":"서울"}`, "g {}"}}},
		{"V3 without a fence", "deepseek+tools", section + begin + "function" + sep + "f\n{}" + end + over, said{calls: []string{"f {}"}}},
		{"V3 with a bare fence", "deepseek+tools", section + begin + "function" + sep + "f\n```\n{}\n```" + end + over, said{calls: []string{"f {}"}}},
		{"V3.1 with a fence", "deepseek+tools", section + begin + "f" + sep + "```json\n{}\n```" + end + over, said{calls: []string{"f {}"}}},
		{"no arguments", "deepseek+tools", section + begin + "f" + sep + end + begin + "function" + sep + "g\n```json\n```" + end + over, said{calls: []string{"f {}", "g {}"}}},
		{"no section, no end", "deepseek+tools", begin + "f" + sep + "{}", said{calls: []string{"f {}"}}},
		{"reasoning", "deepseek+tools+think", "Why?\n</think>\n\n" + section + begin + "f" + sep + "{}" + end + over, said{reasoning: "Why?", calls: []string{"f {}"}}},
		{"reasoning and text", "deepseek", "<think>\nWhy?\n</think>\n\nSo.", said{reasoning: "Why?", content: "So."}},
		{"cut", "deepseek+tools", section + begin + "f", said{content: begin + "f"}},
		{"no call", "deepseek+tools", section + "so" + over, said{content: "so" + over}},
		{"DSML", "deepseek+tools", "Ok.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">1 < 2</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">{\"a\": 1}</｜DSML｜parameter>\n<｜DSML｜parameter name=\"z\" string=\"true\">7</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", said{content: "Ok.", calls: []string{`f {"s":"1 < 2","n":{"a": 1},"z":"7"}`, "g {}"}}},
	})
}

func TestMistral(t *testing.T) {
	runCases(t, []parserCase{
		{"list", "mistral+tools", `[TOOL_CALLS] [{"name": "f", "arguments": {"x": "]"}}, {"arguments": {}, "name": "g"}]`, said{calls: []string{`f {"x": "]"}`, "g {}"}}},
		{"object", "mistral+tools", `[TOOL_CALLS]{"name": "f", "arguments": {}}`, said{calls: []string{"f {}"}}},
		{"arguments behind a name", "mistral+tools", `Ok.[TOOL_CALLS]f[ARGS]{"x": {"y": "}"}}[TOOL_CALLS]g[ARGS]{}`, said{content: "Ok.", calls: []string{`f {"x": {"y": "}"}}`, "g {}"}}},
		{"ids", "mistral+tools", `[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}`, said{calls: []string{"f {}"}}},
		{"no marker of arguments", "mistral+tools", `[TOOL_CALLS]add{"a": 3.5}[TOOL_CALLS]g{}`, said{calls: []string{`add {"a": 3.5}`, "g {}"}}},
		{"text behind", "mistral+tools", `[TOOL_CALLS]f[ARGS]{}` + "\n\nDone.", said{content: "Done.", calls: []string{"f {}"}}},
		{"reasoning", "mistral+tools", "[THINK]Why [x]?[/THINK]So.", said{reasoning: "Why [x]?", content: "So."}},
		{"reasoning and call", "mistral+tools+think", "Why?[/THINK][TOOL_CALLS]f[ARGS]{}", said{reasoning: "Why?", calls: []string{"f {}"}}},
		{"older tags", "mistral+tools", "<think>\nWhy?\n</think>\nSo.", said{reasoning: "Why?", content: "So."}},
		{"brackets", "mistral+tools", "a [b] [TOOL [TOOL_CALLS", said{content: "a [b] [TOOL [TOOL_CALLS"}},
		{"no call", "mistral+tools", "[TOOL_CALLS]so it is", said{content: "[TOOL_CALLS]so it is"}},
		{"empty list", "mistral+tools", "[TOOL_CALLS][]", said{}},
		{"one", "mistral+tools+one", `[TOOL_CALLS][{"name":"f","arguments":{}},{"name":"g","arguments":{"a":1}}] x`, said{content: "x", calls: []string{"f {}"}}},
	})
	s, _ := ParseSpec("mistral+tools")
	p := NewParser(s, "job")
	p.Add(`[TOOL_CALLS][{"name":"f","id":"abcDEF123","arguments":{}},{"name":"f","id":"call_7","arguments":{}}]`)
	if p.calls[0].id != "abcDEF123" || len(p.calls[1].id) != 9 || strings.Contains(p.calls[1].id, "_") {
		t.Errorf("ids %q and %q", p.calls[0].id, p.calls[1].id)
	}
}

// TestTables: no marker or word is the beginning of another in its place, so a match
// is certain when it is whole.
func TestTables(t *testing.T) {
	for _, f := range Families() {
		s := syntaxOf(f)
		var markers []string
		for _, m := range s.markers {
			markers = append(markers, m.text)
			if m.kind == markCall && (m.to < 1 || m.to >= len(s.steps)) {
				t.Errorf("%s: %q leads to step %d", f, m.text, m.to)
			}
		}
		prefixFree(t, string(f), markers)
		for i, st := range s.steps {
			var words []string
			for _, w := range st.words {
				words = append(words, w.text)
				if w.to >= len(s.steps) {
					t.Errorf("%s: %q leads to step %d", f, w.text, w.to)
				}
				if kind := s.steps[w.to].kind; w.do&doFeed != 0 && kind != stepObject && kind != stepArguments {
					t.Errorf("%s: %q feeds step %d", f, w.text, w.to)
				}
			}
			prefixFree(t, string(f)+" step "+string(rune('0'+i)), words)
		}
		shown := Markers(f)
		if !slices.Contains(shown, "<think>") || len(shown) < 3 {
			t.Errorf("%s: markers %q", f, shown)
		}
		for _, m := range shown {
			if strings.TrimSpace(m) != m || len(m) < 2 {
				t.Errorf("%s: marker %q", f, m)
			}
		}
	}
}

func prefixFree(t *testing.T, where string, texts []string) {
	for i, a := range texts {
		for j, b := range texts {
			if i != j && strings.HasPrefix(b, a) {
				t.Errorf("%s: %q begins %q", where, a, b)
			}
		}
	}
}

func TestFamilyOf(t *testing.T) {
	for template, want := range map[string]Family{
		"{{ '<tool_call>' }}": Hermes, "<tool_call>\n<function=": Coder, "<tool_call>{{ n }}<arg_key>": GLM, "<|tool_call_begin|>": Kimi, "<｜tool▁call▁begin｜><tool_call>": DeepSeek,
		"[INST] [TOOL_CALLS]": Mistral, "<|start_header_id|>{{ '{\"name\"' }}": Llama3, Fallback: Hermes, "plain": "", "[INST]": "",
	} {
		if got, ok := FamilyOf(template); got != want || ok != (want != "") {
			t.Errorf("%.40q: %q, %v", template, got, ok)
		}
	}
}

func TestSpec(t *testing.T) {
	for _, s := range []Spec{
		{},
		{Family: Hermes},
		{Family: Kimi, Tools: true, Thinks: true, One: true},
		{Family: GLM, Tools: true, Strings: "AQID"},
	} {
		got, err := ParseSpec(s.String())
		if err != nil || got != s {
			t.Errorf("%+v is %q is %+v, %v", s, s.String(), got, err)
		}
	}
	for _, text := range []string{"other", "+tools", "hermes+", "hermes+tool", "hermes+str:", "hermes+str:%", "hermes+str:" + strings.Repeat("A", 3000), "Hermes"} {
		if s, err := ParseSpec(text); err == nil {
			t.Errorf("%q is taken as %+v", text, s)
		}
	}
}
