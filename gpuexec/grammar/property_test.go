package grammar

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// drawn is a random schema of the subset and a way to draw values that conform,
// written as the grammar writes them.
type drawn struct {
	schema string
	value  func(t *rapid.T) string
}

func drawSchema(t *rapid.T, depth int) drawn {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	if depth == 0 {
		kind %= 6
	}
	switch kind {
	case 0:
		least := rapid.IntRange(0, 3).Draw(t, "minLength")
		most := least + rapid.IntRange(0, 3).Draw(t, "more")
		return drawn{fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, least, most), func(t *rapid.T) string {
			return quoteJSON(rapid.StringOfN(rapid.RuneFrom([]rune("ab\"\\\n한😀\x01<")), least, most, -1).Draw(t, "string"))
		}}
	case 1:
		return drawn{`{"type":"integer","description":"n"}`, func(t *rapid.T) string {
			return fmt.Sprint(rapid.IntRange(-1e15, 1e15).Draw(t, "integer"))
		}}
	case 2:
		return drawn{`{"type":"number"}`, func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"0", "-1.5", "2e10", "3.25E-7", "12"}).Draw(t, "number")
		}}
	case 3:
		return drawn{`{"type":["boolean","null"]}`, func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "boolean")
		}}
	case 4:
		return drawn{`{"enum":["a",1,{"k":[null]}]}`, func(t *rapid.T) string {
			return rapid.SampledFrom([]string{`"a"`, "1", `{"k":[null]}`}).Draw(t, "enum")
		}}
	case 5:
		return drawn{`{"const":"c\""}`, func(*rapid.T) string { return `"c\""` }}
	case 6, 7:
		return drawArray(t, depth)
	case 8:
		a, b := drawSchema(t, depth-1), drawSchema(t, depth-1)
		return drawn{`{"anyOf":[` + a.schema + `,` + b.schema + `]}`, func(t *rapid.T) string {
			if rapid.Bool().Draw(t, "first") {
				return a.value(t)
			}
			return b.value(t)
		}}
	default:
		return drawObject(t, depth)
	}
}

func drawArray(t *rapid.T, depth int) drawn {
	item := drawSchema(t, depth-1)
	least := rapid.IntRange(0, 2).Draw(t, "minItems")
	most := least + rapid.IntRange(0, 2).Draw(t, "more")
	schema := fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d,"maxItems":%d}`, item.schema, least, most)
	return drawn{schema, func(t *rapid.T) string {
		var parts []string
		for range rapid.IntRange(least, most).Draw(t, "items") {
			parts = append(parts, item.value(t))
		}
		return "[" + strings.Join(parts, rapid.SampledFrom([]string{",", ", ", ",\n  "}).Draw(t, "comma")) + "]"
	}}
}

func drawObject(t *rapid.T, depth int) drawn {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "ab", "b", "한", "-", "a\"b"}), 0, 4, rapid.ID[string]).Draw(t, "names")
	var props, required []string
	var members []drawn
	needed := map[string]bool{}
	for _, name := range names {
		m := drawSchema(t, depth-1)
		members = append(members, m)
		props = append(props, quoteJSON(name)+":"+m.schema)
		if rapid.Bool().Draw(t, "required") {
			required = append(required, quoteJSON(name))
			needed[name] = true
		}
	}
	more := rapid.SampledFrom([]string{"false", "true", `{"type":"integer"}`}).Draw(t, "additional")
	schema := fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s],"additionalProperties":%s}`,
		strings.Join(props, ","), strings.Join(required, ","), more)
	return drawn{schema, func(t *rapid.T) string {
		var parts []string
		for i, name := range names {
			if needed[name] || rapid.Bool().Draw(t, "present") {
				parts = append(parts, quoteJSON(name)+":"+members[i].value(t))
			}
		}
		if more != "false" && rapid.Bool().Draw(t, "extra") {
			parts = append(parts, rapid.SampledFrom([]string{`"abc"`, `""`, `"x"`}).Draw(t, "key")+`:7`)
		}
		return "{" + strings.Join(parts, rapid.SampledFrom([]string{",", ", "}).Draw(t, "comma")) + "}"
	}}
}

// change damages a JSON text a little; the result may still conform.
func change(t *rapid.T, text string) string {
	switch rapid.IntRange(0, 3).Draw(t, "change") {
	case 0: // another value somewhere
		old := rapid.SampledFrom([]string{`"a"`, "1", "true", "null", "[", "7", "0"}).Draw(t, "old")
		with := rapid.SampledFrom([]string{`"zzzzzzzz"`, "1.5", "{}", "[]", "null"}).Draw(t, "with")
		return strings.Replace(text, old, with, 1)
	case 1: // one character less
		r := []rune(text)
		i := rapid.IntRange(0, len(r)-1).Draw(t, "at")
		return string(r[:i]) + string(r[i+1:])
	case 2: // another member
		return strings.Replace(text, "{", `{"zz":"q",`, 1)
	default: // one element more
		return strings.Replace(text, "]", `,{"zz":1}]`, 1)
	}
}

// A value drawn from a schema is accepted; a text that a validator refuses, or
// that is no JSON, is refused.
func TestSchemaAgainstValidator(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawSchema(t, 3)
		text, err := FromSchema(json.RawMessage(d.schema))
		if err != nil {
			t.Fatalf("%s\n%v", d.schema, err)
		}
		g, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(d.schema))
		if err != nil {
			t.Fatal(err)
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource("s.json", doc); err != nil {
			t.Fatal(err)
		}
		validator, err := compiler.Compile("s.json")
		if err != nil {
			t.Fatal(err)
		}
		conforms := func(s string) bool {
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(s))
			return err == nil && validator.Validate(v) == nil
		}
		for range 4 {
			value := d.value(t)
			if !conforms(value) {
				t.Fatalf("the test drew %s, which does not conform to %s", value, d.schema)
			}
			if !g.Match(value) {
				t.Fatalf("%s refuses %s\n%s", d.schema, value, text)
			}
			if changed := change(t, value); !conforms(changed) && g.Match(changed) {
				t.Fatalf("%s accepts %s\n%s", d.schema, changed, text)
			}
		}
	})
}
