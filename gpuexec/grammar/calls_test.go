package grammar

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/weir-dev/weir/gpuexec/chat"
	"pgregory.net/rapid"
)

// walk writes a random text of a grammar, or "" if it has not ended after some
// thousand characters. Each way on is taken equally often, so repetitions are short.
func walk(t *rapid.T, g *Grammar) string {
	m := g.Matcher()
	var b strings.Builder
	for range 4000 {
		if m.Complete() && (len(m.now) == 1 || rapid.Bool().Draw(t, "end")) {
			return b.String()
		}
		var sets []charSet
		for _, id := range m.now {
			if id != 0 {
				f := m.frames[id]
				sets = append(sets, g.rules[f.rule].alts[f.alt][f.pos].chars)
			}
		}
		set := sets[rapid.IntRange(0, len(sets)-1).Draw(t, "way")]
		var chars []rune
		for _, r := range set.ranges {
			chars = append(chars, r[0], r[1], min(r[0]+1, r[1]))
		}
		if set.negated {
			chars = nil
		}
		for _, r := range "aB7 한😀\n\"\\<>{}" {
			if set.has(r) {
				chars = append(chars, r)
			}
		}
		c := rapid.SampledFrom(chars).Draw(t, "char")
		b.WriteRune(c)
		if !m.Feed([]byte(string(c))) {
			t.Fatalf("%q is no way on behind %q", c, b.String())
		}
	}
	return ""
}

// flavours are the templates by which the forms of families differ.
var flavours = []struct{ family, template string }{
	{"hermes", ""},
	{"coder", ""},
	{"llama3", ""},
	{"kimi", ""},
	{"glm", ""},
	{"deepseek", ""},
	{"deepseek", "```json"},
	{"mistral", "[THINK]"},
	{"mistral", "[ARGS]"},
}

func toolOf(name, parameters string) json.RawMessage {
	if parameters == "" {
		return json.RawMessage(`{"type":"function","function":{"name":` + quoteJSON(name) + `}}`)
	}
	return json.RawMessage(`{"type":"function","function":{"name":` + quoteJSON(name) + `,"parameters":` + parameters + `}}`)
}

type made struct {
	Content   *string
	Reasoning string `json:"reasoning_content"`
	Calls     []struct {
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

func read(t testing.TB, spec chat.Spec, text string) (m made) {
	p := chat.NewParser(spec, "job")
	p.Add(text)
	p.End()
	if err := json.Unmarshal(p.Message(), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func validator(t testing.TB, schema string) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("s.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("s.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestForcedCalls: whatever a grammar of forced calls lets a model write is read by
// the family's parser as calls of the tools, with arguments that conform.
func TestForcedCalls(t *testing.T) {
	names := []string{"f", "fo", "get_weather", "get-time", "mcp.files/read", "날씨"}
	rapid.Check(t, func(rt *rapid.T) {
		schemas := map[string]string{}
		var tools []json.RawMessage
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 4, rapid.ID[string]).Draw(rt, "names") {
			schemas[name] = ""
			if rapid.IntRange(0, 4).Draw(rt, "with parameters") > 0 {
				schemas[name] = drawObject(rt, 2).schema
			}
			tools = append(tools, toolOf(name, schemas[name]))
		}
		flavour := rapid.SampledFrom(flavours).Draw(rt, "flavour")
		calls := Calls{Family: flavour.family, Template: flavour.template, Tools: tools, One: rapid.Bool().Draw(rt, "one"), Thinks: rapid.Bool().Draw(rt, "thinks")}
		if rapid.Bool().Draw(rt, "only") {
			calls.Only = []string{slices.Max(slices.Collect(maps.Keys(schemas)))}
		}
		text, err := ToolCalls(calls)
		if err != nil {
			rt.Fatal(err)
		}
		g, err := Parse(text)
		if err != nil {
			rt.Fatal(err)
		}
		said := walk(rt, g)
		if said == "" {
			rt.Skip("endless")
		}
		family := chat.Family(flavour.family)
		m := read(t, chat.Spec{Family: family, Tools: true, Thinks: calls.Thinks, Strings: chat.StringParameters(family, tools)}, said)
		if m.Content != nil || len(m.Calls) == 0 || calls.One && len(m.Calls) > 1 {
			rt.Fatalf("%q\nis read as %+v\n%s", said, m, text)
		}
		for _, c := range m.Calls {
			schema, known := schemas[c.Function.Name]
			if !known || len(calls.Only) > 0 && c.Function.Name != calls.Only[0] {
				rt.Fatalf("%q calls %q", said, c.Function.Name)
			}
			if schema == "" {
				schema = `{"type":"object","maxProperties":0}`
			}
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(c.Function.Arguments))
			if err == nil {
				err = validator(t, schema).Validate(v)
			}
			if err != nil {
				rt.Fatalf("%q\narguments %q of %s\n%v", said, c.Function.Arguments, schema, err)
			}
		}
	})
}

// TestForcedLenient: what the subset lacks is left out, and an answer is still an
// object with the listed properties as far as they are understood.
func TestForcedLenient(t *testing.T) {
	for _, c := range []struct{ parameters, yes, no string }{
		{`{"type":"object","properties":{"n":{"type":"integer","minimum":0}},"required":["n"]}`, `{"n": 3}`, `{"n": "x"}`},
		{`{"type":"object","properties":{"u":{"type":"string","format":"uri","pattern":"^h"}}}`, `{"u": "x"}`, `{"u": 1}`},
		{`{"type":"object","properties":{"u":{"not":{}}},"required":["u"]}`, `{"u": [1, null]}`, `{}`},
		{`{"type":"object","properties":{"s":{"type":"string","format":"email","minLength":2}}}`, `{"s": "ab"}`, `{"s": "a"}`},
		{`{"type":"object","properties":{"a":{"type":"array","items":{"type":"boolean"},"uniqueItems":true}}}`, `{"a": [true]}`, `{"a": [1]}`},
		{`{"type":"object","properties":{"o":{"type":"object","properties":{"x":{"type":"null"}},"anyOf":[{"required":["x"]}]}}}`, `{"o": {"x": null}}`, `{"o": 1}`},
		{`{"type":"object","anyOf":[{"required":["a"]}],"properties":{"a":{"type":"null"}}}`, `{"a": null}`, `{"b": 1}`},
		{`{"$ref":"#/$defs/x","$defs":{"x":{"type":"object"}}}`, `{"any": {"thing": 1}}`, `[]`},
		{`{"type":"object","properties":{"t":{"$ref":"#/$defs/t"}},"$defs":{"t":{"type":"object","properties":{"next":{"$ref":"#/$defs/t"}}}}}`, `{"t": {"next": {"next": {}}}}`, `{"t": {"next": 1}}`},
		{`{"type":"object","properties":{"t":{"$ref":"#/$defs/t"}},"required":["t"],"$defs":{"t":{"type":"object","properties":{"next":{"$ref":"#/$defs/t"}},"required":["next"]}}}`, `{"x": 1}`, `1`},
		{`{"type":"string"}`, `{"x": 1}`, `"x"`},
		{`true`, `{"x": 1}`, `"x"`},
		{`{`, ``, ``},
		{`null`, `{}`, `{"x": 1}`},
		{`{}`, `{"x": [{}]}`, `1`},
		{`{"type":"object","properties":{}}`, `{}`, `{"x": 1}`},
	} {
		tool := toolOf("f", c.parameters)
		text, err := ToolCalls(Calls{Family: "hermes", Tools: []json.RawMessage{tool}, One: true})
		if c.yes == "" {
			if !errors.Is(err, ErrTools) {
				t.Errorf("%s: %v", c.parameters, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.parameters, err)
			continue
		}
		call := func(arguments string) string {
			return "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>"
		}
		if !match(t, text, call(c.yes)) || match(t, text, call(c.no)) {
			t.Errorf("%s\n%s\n%s", c.parameters, c.yes, text)
		}
	}
}

func TestForcedRefuses(t *testing.T) {
	f := toolOf("f", "")
	many := func(n int, parameters string) (out []json.RawMessage) {
		for i := range n {
			out = append(out, toolOf(fmt.Sprintf("tool_%d", i), parameters))
		}
		return out
	}
	long := func(n int, parameters string) (out []json.RawMessage) {
		for i := range n {
			out = append(out, toolOf(fmt.Sprintf("%x%x", sha256.Sum256([]byte{byte(i), byte(i >> 8)}), sha256.Sum256([]byte{byte(i >> 8), byte(i)})), parameters))
		}
		return out
	}
	for _, c := range []struct {
		calls Calls
		want  string
	}{
		{Calls{Family: "other", Tools: []json.RawMessage{f}}, "family"},
		{Calls{Family: "hermes"}, "none"},
		{Calls{Family: "hermes", Only: []string{"f", "g"}, Tools: []json.RawMessage{f}}, `"g"`},
		{Calls{Family: "hermes", Tools: []json.RawMessage{[]byte(`{}`)}}, "tools[0]"},
		{Calls{Family: "hermes", Tools: []json.RawMessage{[]byte(`[]`)}}, "tools[0]"},
		{Calls{Family: "kimi", Tools: []json.RawMessage{f, toolOf("a b", "")}}, "tools[1]"},
		{Calls{Family: "hermes", Tools: many(3000, "")}, "3000"},
		{Calls{Family: "hermes", Tools: long(1900, `{"type":"object"}`)}, "1900"},
	} {
		_, err := ToolCalls(c.calls)
		if !errors.Is(err, ErrTools) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %d tools, want %s: %v", c.calls.Family, len(c.calls.Tools), c.want, err)
		}
	}
}

// TestForcedLarge: two megabytes of tools make a grammar in time, which follows as
// many schemas as fit.
func TestForcedLarge(t *testing.T) {
	for _, own := range []bool{false, true} { // whether tools have parameters of their own
		var tools []json.RawMessage
		for i := range 100 {
			var props []string
			for k := range 40 {
				name := fmt.Sprintf("p%d", k)
				if own {
					name += fmt.Sprintf("_of_tool_%d", i)
				}
				props = append(props, fmt.Sprintf(`%q:{"type":"integer","description":%q}`, name, strings.Repeat("words ", 170)))
			}
			props = props[:1+i%40]
			tools = append(tools, toolOf(fmt.Sprintf("tool_%d", i), `{"type":"object","properties":{`+strings.Join(props, ",")+`}}`))
		}
		start := time.Now()
		for _, f := range flavours {
			text, err := ToolCalls(Calls{Family: f.family, Template: f.template, Tools: tools})
			if err != nil {
				t.Fatalf("%v: %v", f, err)
			}
			if len(text) < 4000 {
				t.Errorf("%v: no schema is followed: %d bytes of grammar", f, len(text))
			}
			t.Logf("%v: %d bytes of grammar from %d of tools", f, len(text), len(slices.Concat(tools...)))
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

// FuzzToolCalls: no tool definition makes a grammar that the check refuses.
func FuzzToolCalls(f *testing.F) {
	f.Add(uint8(0), `{"type":"object","properties":{"a":{"type":"string","maxLength":3},"b":{"$ref":"#/properties/a"}},"required":["a"]}`)
	f.Add(uint8(4), `{"type":"object","properties":{"a":{"enum":["<"]},"c":{"anyOf":[{"type":"null"},{"type":"array","items":{}}]}},"additionalProperties":false}`)
	f.Fuzz(func(t *testing.T, n uint8, parameters string) {
		if !json.Valid([]byte(parameters)) {
			return
		}
		v := flavours[int(n)%len(flavours)]
		text, err := ToolCalls(Calls{Family: v.family, Template: v.template, Tools: []json.RawMessage{toolOf("f", parameters)}, Thinks: n&64 > 0, One: n&128 > 0})
		if err != nil {
			t.Fatalf("%s: %v", parameters, err)
		}
		if err := Check(text); err != nil {
			t.Fatalf("%s: %v\n%s", parameters, err, text)
		}
	})
}
