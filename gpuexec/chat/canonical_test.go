package chat

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCanonical(t *testing.T) {
	for _, group := range []struct {
		name string
		want string
		same []string // spellings that clients use for one message
	}{
		{"text", `{"content":"hi <b>","role":"assistant"}`, []string{
			`{"role":"assistant","content":"hi <b>"}`,
			`{ "content" : "hi \u003cb>", "role":"assistant", "refusal":null }`,
			`{"role":"assistant","content":[{"type":"text","text":"hi <b>"}]}`,
			`{"role":"assistant","content":"hi <b>","reasoning_content":"hm","tool_calls":[],"name":"bot"}`,
		}},
		{"tool call", `{"content":"","role":"assistant","tool_calls":[{"arguments":{"a":[1,2.5,{"x":null}],"z":"서울"},"name":"w"}]}`, []string{
			`{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"w","arguments":"{\"z\":\"서울\",\"a\":[1,2.5,{\"x\":null}]}"}}]}`,
			`{"role":"assistant","tool_calls":[{"function":{"arguments":" { \"a\" : [1.0, 25e-1, {\"x\": null}],\n \"z\" : \"\\uc11c\\uc6b8\" } ","name":"w"},"id":"other","index":0}]}`,
			`{"role":"assistant","content":"","tool_calls":[{"function":{"name":"w","arguments":{"z":"서울","a":[1,2.5,{"x":null}]}}}]}`,
		}},
		{"no arguments", `{"content":"","role":"assistant","tool_calls":[{"arguments":{},"name":"now"}]}`, []string{
			`{"role":"assistant","tool_calls":[{"function":{"name":"now","arguments":"{}"}}]}`,
			`{"role":"assistant","tool_calls":[{"function":{"name":"now","arguments":""}}]}`,
			`{"role":"assistant","tool_calls":[{"function":{"name":"now"}}]}`,
		}},
		{"arguments that are no JSON", `{"content":"","role":"assistant","tool_calls":[{"arguments":"{a","name":"w"}]}`, []string{
			`{"role":"assistant","tool_calls":[{"function":{"name":"w","arguments":"{a"}}]}`,
		}},
		{"tool result", `{"content":"ok","role":"tool","tool_call_id":"c1"}`, []string{
			`{"role":"tool","tool_call_id":"c1","content":"ok"}`,
		}},
		{"image stays", `{"content":[{"image_url":{"url":"u"},"type":"image_url"}],"role":"user"}`, []string{
			`{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}`,
		}},
	} {
		for _, s := range group.same {
			got, err := Canonical(json.RawMessage(s))
			if err != nil || got != group.want {
				t.Errorf("%s: %s\n\tgot  %s\n\twant %s\n\t%v", group.name, s, got, group.want, err)
			}
		}
	}
}

func TestCanonicalTellsApart(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{
		`{"role":"assistant","content":"a"}`,
		`{"role":"assistant","content":"a\n"}`,
		`{"role":"assistant","content":"A"}`,
		`{"role":"user","content":"a"}`,
		`{"role":"user","name":"b","content":"a"}`,
		`{"role":"tool","tool_call_id":"1","content":"a"}`,
		`{"role":"tool","tool_call_id":"2","content":"a"}`,
		`{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"w","arguments":"{\"x\":1}"}}]}`,
		`{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"w","arguments":"{\"x\":\"1\"}"}}]}`,
		`{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"v","arguments":"{\"x\":1}"}}]}`,
		`{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"w","arguments":"{}"}},{"function":{"name":"w","arguments":"{\"x\":1}"}}]}`,
	} {
		c, err := Canonical(json.RawMessage(s))
		if err != nil {
			t.Fatal(err)
		}
		d := Digest(c)
		if len(d) != 64 || seen[d] != "" {
			t.Errorf("%s has the digest of %q", s, seen[d])
		}
		seen[d] = s
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for _, s := range []string{``, `{`, `[]`, `{"role":1}`, `{"role":"a","content":1}`, `{"role":"a","tool_calls":[1]}`, `{"role":"a"}{}`} {
		if _, err := Canonical(json.RawMessage(s)); !errors.Is(err, ErrMessage) {
			t.Errorf("%q: error %v", s, err)
		}
	}
}

// Arguments that were decoded, had their keys shuffled and were printed in
// another style keep their canonical form.
func TestCanonicalOfShuffledArguments(t *testing.T) {
	value := func(t *rapid.T) any {
		return rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }),
			rapid.Map(rapid.Float64(), func(f float64) any {
				if math.IsNaN(f) || math.IsInf(f, 0) {
					return nil
				}
				return f
			}),
			rapid.Map(rapid.SliceOfN(rapid.Int32(), 0, 3), func(v []int32) any { return v }),
		).Draw(t, "value")
	}
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.StringN(0, 6, -1), 0, 5, rapid.ID[string]).Draw(t, "keys")
		object := map[string]any{}
		for _, k := range keys {
			object[k] = value(t)
		}
		shuffled := slices.Clone(keys)
		slices.Reverse(shuffled)
		var b strings.Builder
		b.WriteString("{ ")
		for i, k := range shuffled {
			if i > 0 {
				b.WriteString(" ,\n")
			}
			name, _ := json.Marshal(k)
			v, err := json.MarshalIndent(object[k], " ", "  ")
			if err != nil {
				t.Fatal(err)
			}
			b.Write(name)
			b.WriteString(" : ")
			b.Write(v)
		}
		b.WriteString("}")
		compact, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		form := func(arguments string) string {
			quoted, _ := json.Marshal(arguments)
			c, err := Canonical(json.RawMessage(`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":` + string(quoted) + `}}]}`))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		if x, y := form(string(compact)), form(b.String()); x != y {
			t.Fatalf("%s\n%s", x, y)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	f.Add(`{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"w","arguments":"{\"a\":1}"}}]}`)
	f.Add(`{"role":"user","content":[{"type":"text","text":"a"}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Canonical(json.RawMessage(s))
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatalf("error %v does not wrap ErrMessage", err)
			}
			return
		}
		if !json.Valid([]byte(c)) {
			t.Fatalf("%q is no JSON", c)
		}
	})
}
