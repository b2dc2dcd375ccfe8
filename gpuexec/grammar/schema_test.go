package grammar

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestFromSchema(t *testing.T) {
	const tree = `{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
		"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["v"]}}}`
	for _, c := range []struct {
		schema  string
		yes, no []string
	}{
		{`{"type":"string"}`, []string{`""`, `"a\n\u00e9한😀\""`, `"\ud7ff"`}, []string{`a`, `"`, `"\q"`, "\"\n\"", `"\ud83d\ude00"`, `1`}},
		{`{"type":"string","minLength":2,"maxLength":3}`, []string{`"ab"`, `"한국어"`, `"\n\\"`}, []string{`"a"`, `"abcd"`}},
		{`{"type":"integer"}`, []string{`0`, `-7`, `123`}, []string{`01`, `1.0`, `-`, `+1`, `"1"`}},
		{`{"type":"number"}`, []string{`0`, `-1.50`, `1e9`, `2E-3`}, []string{`.5`, `1.`, `1e`, `NaN`}},
		{`{"type":"boolean"}`, []string{`true`, `false`}, []string{`True`, `0`}},
		{`{"type":"null"}`, []string{`null`}, []string{`nil`}},
		{`{"type":["string","null"]}`, []string{`"a"`, `null`}, []string{`1`}},
		{`{"enum":["a","b\"c",3,null,{"x":[1]}]}`, []string{`"a"`, `"b\"c"`, `3`, `null`, `{"x":[1]}`}, []string{`"c"`, `4`}},
		{`{"type":"string","enum":["<a>"]}`, []string{`"<a>"`}, []string{`"\u003ca>"`}},
		{`{"const":{"k":"한"}}`, []string{`{"k":"한"}`}, []string{`{"k":"하"}`}},
		{`{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3}`, []string{`[1]`, `[1,2,3]`, `[ 1, 2]`, "[\n  1,\n  2\n]"}, []string{`[]`, `[1,2,3,4]`, `[1,]`, `["a"]`}},
		{`{"type":"array","minItems":2}`, []string{`[1,"a"]`, `[{},[],null]`}, []string{`[1]`, `[]`}},
		{`{"type":"array","maxItems":0}`, []string{`[]`, `[ ]`}, []string{`[1]`}},
		{`{"type":"array","maxItems":1}`, []string{`[]`, `[1]`}, []string{`[1,2]`}},
		{
			`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"]}`,
			[]string{`{"b":"x"}`, `{"a":1,"b":"x","c":null}`, `{"b": "x", "c": null}`, `{"a":1,"b":"x"}`},
			[]string{`{}`, `{"a":1}`, `{"b":"x","a":1}`, `{"b":"x",}`, `{"b":"x","d":1}`, `{"a":1"b":"x"}`, `{,"b":"x"}`},
		},
		{
			`{"type":"object","properties":{"a":{}},"additionalProperties":true}`,
			[]string{`{}`, `{"a":[1]}`, `{"a":1,"ab":2,"":3}`, `{"b":1,"c":{"a":1}}`, `{"aa":1}`},
			[]string{`{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"\u0061":1}`},
		},
		{`{"type":"object","properties":{"-^]":{},"-":{},"한":{}},"additionalProperties":true}`, []string{`{"한":1,"한국":2}`, `{"-^":1}`, `{"-^]x":1}`}, []string{`{"x":1,"-^]":1}`, `{"x":1,"한":1}`}},
		{`{"type":"object","additionalProperties":{"type":"integer"}}`, []string{`{}`, `{"x":1,"y":2}`}, []string{`{"x":"1"}`}},
		{`{"type":"object","additionalProperties":false}`, []string{`{}`}, []string{`{"x":1}`}},
		{`{"type":"object"}`, []string{`{}`, `{"x":{"y":[]}}`}, []string{`[]`, `{"x"}`}},
		{`{"properties":{"a":{"const":1}},"required":["a"]}`, []string{`{"a":1}`}, []string{`{}`, `7`}},
		{`{"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"boolean"}}]}`, []string{`1`, `[true]`}, []string{`"x"`, `[1]`}},
		{`{"oneOf":[{"const":1},{"const":2}],"description":"d"}`, []string{`1`, `2`}, []string{`3`}},
		{`{"allOf":[{"type":"null"}]}`, []string{`null`}, []string{`1`}},
		{tree, []string{`{"v":1}`, `{"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]}`}, []string{`{"kids":[]}`, `{"v":1,"kids":[{}]}`}},
		{`{"type":"object","properties":{"next":{"$ref":"#"}}}`, []string{`{}`, `{"next":{"next":{}}}`}, []string{`{"next":1}`}},
		{`{"type":"object","properties":{"a/b~c":{"const":1},"z":{"$ref":"#/properties/a~1b~0c"}}}`, []string{`{"a/b~c":1,"z":1}`}, []string{`{"z":2}`}},
		{`{"type":"string","format":"date"}`, []string{`"2026-12-01"`}, []string{`"2026-13-01"`, `"26-1-1"`}},
		{`{"type":"string","format":"date-time"}`, []string{`"2026-12-01T09:05:03Z"`, `"2026-12-01T09:05:03.5+09:00"`}, []string{`"2026-12-01"`, `"2026-12-01T25:00:00Z"`}},
		{`{"type":"string","format":"uuid"}`, []string{`"123e4567-e89b-12d3-a456-426614174000"`}, []string{`"123e4567"`}},
		{`true`, []string{`1`, `{"a":[]}`}, []string{``, `{`}},
		{`{}`, []string{`"x"`, `[1,2]`}, []string{`x`}},
	} {
		text, err := FromSchema(json.RawMessage(c.schema))
		if err != nil {
			t.Errorf("%s\n\t%v", c.schema, err)
			continue
		}
		for _, s := range c.yes {
			if !json.Valid([]byte(s)) {
				t.Errorf("the example %s is no JSON", s)
			}
			if !match(t, text, s) {
				t.Errorf("%s refuses %s\n%s", c.schema, s, text)
			}
		}
		for _, s := range c.no {
			if match(t, text, s) {
				t.Errorf("%s accepts %s\n%s", c.schema, s, text)
			}
		}
	}
}

func TestJSONObject(t *testing.T) {
	for _, s := range []string{`{}`, `{"a":1}`, `{"a": {"b": [1, true, null, "x"]}, "c": -1.5e3}`, "{\n  \"a\": 1\n}"} {
		if !match(t, JSONObject(), s) {
			t.Errorf("refuses %s", s)
		}
	}
	for _, s := range []string{``, `[]`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{} `, "{\n\n\n\"a\":1}"} {
		if match(t, JSONObject(), s) {
			t.Errorf("accepts %s", s)
		}
	}
}

func TestUnsupported(t *testing.T) {
	for _, c := range []struct{ schema, pointer, keyword string }{
		{`{"type":"string","pattern":"a"}`, "", "pattern"},
		{`{"type":"integer","minimum":1}`, "", "minimum"},
		{`{"type":"object","properties":{"a/b":{"type":"array","uniqueItems":true}}}`, "/properties/a~1b", "uniqueItems"},
		{`{"type":"array","prefixItems":[]}`, "", "prefixItems"},
		{`{"type":"array","items":{"not":{}}}`, "/items", "not"},
		{`{"type":"object","patternProperties":{}}`, "", "patternProperties"},
		{`{"type":"object","required":["x"]}`, "", "required"},
		{`{"type":"object","properties":{},"required":["x"]}`, "", "required"},
		{`{"type":"string","format":"email"}`, "", "format"},
		{`{"type":"string","format":"date","minLength":3}`, "", "format"},
		{`{"type":"string","maxLength":5000}`, "", "maxLength"},
		{`{"anyOf":[{"type":"null"},{"$ref":"http://x"}]}`, "/anyOf/1", "$ref"},
		{`{"anyOf":[{}],"properties":{}}`, "", "properties"},
		{`{"allOf":[{},{}]}`, "", "allOf"},
		{`{"if":{},"then":{}}`, "", "if"},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"multipleOf":2,"type":"number"}}}`, "/$defs/a", "multipleOf"},
		{`false`, "", "false"},
		{`{"type":"object","additionalProperties":{"minProperties":1}}`, "/additionalProperties", "minProperties"},
		{`{"type":"integer","enum":["a"]}`, "", "enum"},
		{`{"type":"object","properties":{"` + strings.Repeat("k", 5000) + `":{}},"additionalProperties":true}`, "", "additionalProperties"},
	} {
		_, err := FromSchema(json.RawMessage(c.schema))
		var u *UnsupportedError
		if !errors.As(err, &u) || !errors.Is(err, ErrUnsupported) || u.Pointer != c.pointer || u.Keyword != c.keyword {
			t.Errorf("%.80s: error %v, want %q at %q", c.schema, err, c.keyword, c.pointer)
		}
	}
}

func TestBadSchema(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{``, "unexpected EOF"},
		{`{`, "unexpected EOF"},
		{`{} {}`, "data after"},
		{`7`, "neither an object nor a boolean"},
		{`{"type":"text"}`, `"text" is no type`},
		{`{"type":[]}`, "must be a type"},
		{`{"type":{"a":1}}`, "is no type"},
		{`{"enum":[]}`, "must be an array with values"},
		{`{"anyOf":{}}`, "must be an array with schemas"},
		{`{"type":"object","properties":[]}`, "properties must be an object"},
		{`{"type":"object","required":"a"}`, "required must be an array"},
		{`{"type":"object","required":[1]}`, "required must be an array"},
		{`{"type":"array","minItems":-1}`, "minItems must be a non-negative integer"},
		{`{"type":"array","minItems":1.5}`, "minItems must be a non-negative integer"},
		{`{"type":"array","minItems":3,"maxItems":2}`, "minItems 3 is above maxItems 2"},
		{`{"$ref":"#/$defs/x"}`, "leads nowhere"},
		{`{"type":"object","type":"array"}`, "occurs twice"},
		{`{"$ref":"#"}`, "no finite value"},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`, "no finite value"},
		{`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, "no finite value"},
		{strings.Repeat(`{"items":`, 100) + `{}` + strings.Repeat(`}`, 100), "nested deeper"},
		{`"` + strings.Repeat("x", maxSchema) + `"`, "bytes, at most"},
	} {
		if _, err := FromSchema(json.RawMessage(c.schema)); !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: error %v, want it to say %q", c.schema, err, c.want)
		}
	}
}

// Many long strings of one length are one rule.
func TestFromSchemaSharesRules(t *testing.T) {
	schema := `{"type":"array","items":{"anyOf":[` + strings.Repeat(`{"type":"string","maxLength":1000},`, 100) + `{"type":"null"}]}}`
	text, err := FromSchema(json.RawMessage(schema))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, "{0,1000}"); n != 1 {
		t.Errorf("%d rules for one kind of string", n)
	}
}

func TestFromSchemaIsDeterministic(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"b":{"enum":[1,2]},"a":{"type":"string"}},"additionalProperties":true}`)
	first, err := FromSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, _ := FromSchema(schema); again != first {
			t.Fatalf("%s\n%s", first, again)
		}
	}
}

func FuzzFromSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"},"b":{"type":["string","null"],"maxLength":3}},"required":["a"],"$defs":{"x":{"enum":[1,"\n"]}}}`)
	f.Add(`{"anyOf":[{"type":"array","items":{"type":"integer"},"minItems":1},{"type":"object","additionalProperties":true,"properties":{"k":{}}}]}`)
	f.Fuzz(func(t *testing.T, schema string) {
		text, err := FromSchema(json.RawMessage(schema))
		switch {
		case err == nil:
			if err := Check(text); err != nil {
				t.Fatalf("%s\n%s\n%v", schema, text, err)
			}
		case !errors.Is(err, ErrSchema) && !errors.Is(err, ErrUnsupported):
			t.Fatalf("error %v wraps neither ErrSchema nor ErrUnsupported", err)
		}
	})
}
