package schemas_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

func TestCanonicalMessage(t *testing.T) {
	for _, group := range []struct {
		name string
		want string
		same []string // spellings that clients use for one message
	}{
		{"text", `{"content":"hi <b>","role":"assistant"}`, []string{
			`{"role":"assistant","content":"hi <b>"}`,
			`{ "content" : "hi \u003cb>", "role":"assistant", "refusal":null }`,
			`{"role":"assistant","content":[{"type":"text","text":"hi <b>","cache_control":{"type":"ephemeral"}}]}`,
			`{"role":"assistant","content":"hi <b>","reasoning_content":"hm","tool_calls":[],"name":"bot"}`,
			`{"role":"assistant","content":[{"type":"output_text","text":"hi <b>"}],"reasoning":"hm"}`,
		}},
		{"text in parts", `{"content":"세션\n\"끝\"","role":"user"}`, []string{
			`{"role":"user","content":[{"type":"text","text":"세션"},{"type":"input_text","text":"\"끝\""}]}`,
			`{"content":"\uc138\uc158\n\"\ub05d\"","role":"user"}`,
		}},
		{"tool call", `{"content":"","role":"assistant","tool_calls":[{"arguments":{"a":[1,2.5,{"x":null}],"z":"서울"},"name":"w"}]}`, []string{
			`{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"w","arguments":"{\"z\":\"서울\",\"a\":[1,2.5,{\"x\":null}]}"}}]}`,
			`{"role":"assistant","tool_calls":[{"function":{"arguments":" { \"a\" : [1.0, 25e-1, {\"x\": null}],\n \"z\" : \"\\uc11c\\uc6b8\" } ","name":"w"},"id":"other","index":0}]}`,
			`{"role":"assistant","content":"","tool_calls":[{"function":{"name":"w","arguments":{"z":"서울","a":[1,2.5,{"x":null}]}}}]}`,
		}},
		{"no arguments", `{"content":"","role":"assistant","tool_calls":[{"arguments":{},"name":"now"}]}`, []string{
			`{"role":"assistant","tool_calls":[{"function":{"name":"now","arguments":"{}"}}]}`,
			`{"role":"assistant","tool_calls":[{"function":{"name":"now","arguments":""}}]}`,
			`{"role":"assistant","tool_calls":[{"function":{"name":"now","arguments":null}}]}`,
			`{"role":"assistant","tool_calls":[{"function":{"name":"now"}}]}`,
		}},
		{"arguments that are no JSON", `{"content":"","role":"assistant","tool_calls":[{"arguments":"{a","name":"w"}]}`, []string{
			`{"role":"assistant","tool_calls":[{"function":{"name":"w","arguments":"{a"}}]}`,
		}},
		{"tool result", `{"content":"ok","role":"tool","tool_call_id":"c1"}`, []string{
			`{"role":"tool","tool_call_id":"c1","content":"ok"}`,
			`{"tool_call_id":"c1","content":[{"text":"ok","type":"text"}],"role":"tool"}`,
		}},
		{"image stays", `{"content":[{"image_url":{"url":"u"},"type":"image_url"}],"role":"user"}`, []string{
			`{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}`,
			`{"role":"user","content":[{"type":"image_url","image_url":"u","cache_control":{"type":"ephemeral"}}]}`,
		}},
		{"image and text", `{"content":[{"text":"see","type":"text"},{"image_url":{"detail":"low","url":"u"},"type":"image_url"}],"role":"user"}`, []string{
			`{"role":"user","content":[{"type":"input_text","text":"see"},{"image_url":{"url":"u","detail":"low"},"type":"image_url"}]}`,
		}},
	} {
		_, first, _ := schemas.CanonicalMessage(json.RawMessage(group.same[0]))
		for _, s := range group.same {
			got, digest, err := schemas.CanonicalMessage(json.RawMessage(s))
			if err != nil || string(got) != group.want {
				t.Errorf("%s: %s\n\tgot  %s\n\twant %s\n\t%v", group.name, s, got, group.want, err)
			}
			if digest != first {
				t.Errorf("%s: %s has another digest than the first spelling", group.name, s)
			}
		}
	}
}

func TestCanonicalJSON(t *testing.T) {
	for in, want := range map[string]string{`{"b": 1.0, "a":[true , null,"\u0041"]}`: `{"a":[true,null,"A"],"b":1}`, ` 12345678901234567890 `: `12345678901234567890`} {
		if got, err := schemas.CanonicalJSON(json.RawMessage(in)); err != nil || string(got) != want {
			t.Errorf("%s: %s %v", in, got, err)
		}
	}
	if _, err := schemas.CanonicalJSON(json.RawMessage(`{`)); !errors.Is(err, schemas.ErrMessage) {
		t.Errorf("no JSON: %v", err)
	}
}

func TestCanonicalTellsApart(t *testing.T) {
	seen := map[[16]byte]string{}
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
		`{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"w","arguments":"{\"x\":9007199254740993}"}}]}`,
		`{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"w","arguments":"{\"x\":9007199254740992}"}}]}`,
		`{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"v","arguments":"{\"x\":1}"}}]}`,
		`{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"w","arguments":"{}"}},{"function":{"name":"w","arguments":"{\"x\":1}"}}]}`,
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}`,
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"v"}}]}`,
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"u","detail":"high"}}]}`,
		`{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"u"}}]}`,
	} {
		_, d, err := schemas.CanonicalMessage(json.RawMessage(s))
		if err != nil {
			t.Fatal(err)
		}
		if seen[d] != "" {
			t.Errorf("%s has the digest of %s", s, seen[d])
		}
		seen[d] = s
	}
}

func TestCanonicalRefuses(t *testing.T) {
	deep := `{"role":"a","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`
	for _, s := range []string{
		``, `{`, `[]`, `{"role":1}`, `{"role":""}`, `{"role":"a","content":1}`, `{"role":"a","content":[1]}`, `{"role":"a","content":[{"type":"text"}]}`,
		`{"role":"a","tool_calls":[1]}`, `{"role":"a","tool_calls":{}}`, `{"role":"a","tool_calls":[{"function":{}}]}`, `{"role":"a"}{}`, deep, "{\"role\":\"a\xff\"}",
	} {
		if _, _, err := schemas.CanonicalMessage(json.RawMessage(s)); !errors.Is(err, schemas.ErrMessage) {
			t.Errorf("%.60q: error %v", s, err)
		}
	}
	// Arguments of any depth are text, as a model may write them.
	args, _ := json.Marshal(strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500))
	if _, _, err := schemas.CanonicalMessage(json.RawMessage(`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":` + string(args) + `}}]}`)); err != nil {
		t.Error(err)
	}
}

// A message whose JSON was written in another style keeps its canonical form.
func TestCanonicalOfOtherSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.String().Draw(t, "content")
		name := rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "name")
		args := rapid.MapOf(rapid.StringN(0, 6, -1), rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.Int64(), func(n int64) any { return n }),
			rapid.Map(rapid.SliceOfN(rapid.Float32(), 0, 3), func(v []float32) any {
				for i := range v {
					if v[i] != v[i] || v[i]-v[i] != 0 {
						v[i] = 0
					}
				}
				return v
			}),
		)).Draw(t, "args")
		compact, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		spaced, err := json.MarshalIndent(args, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		one, err := json.Marshal(map[string]any{
			"role": "assistant", "content": content,
			"tool_calls": []any{map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": name, "arguments": string(compact)}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		two, err := json.MarshalIndent(map[string]any{
			"tool_calls": []any{map[string]any{"function": map[string]any{"arguments": string(spaced), "name": name}, "id": "other", "index": 0}},
			"content":    []any{map[string]any{"text": content, "type": "text"}}, "role": "assistant", "reasoning_content": "hm",
		}, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		a, da, err := schemas.CanonicalMessage(one)
		if err != nil {
			t.Fatal(err)
		}
		b, db, err := schemas.CanonicalMessage(two)
		if err != nil {
			t.Fatal(err)
		}
		if da != db || !bytes.Equal(a, b) {
			t.Fatalf("%s\n%s", a, b)
		}
	})
}

func FuzzCanonicalMessage(f *testing.F) {
	f.Add(`{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"w","arguments":"{\"a\":1.50e1}"}}]}`)
	f.Add(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"\u2028"}}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		c, d, err := schemas.CanonicalMessage(json.RawMessage(s))
		if err != nil {
			if !errors.Is(err, schemas.ErrMessage) {
				t.Fatalf("error %v does not wrap ErrMessage", err)
			}
			return
		}
		if !json.Valid(c) {
			t.Fatalf("%q is no JSON", c)
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(s), &m); err != nil {
			t.Fatal(err)
		}
		other, err := json.MarshalIndent(m, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if again, d2, err := schemas.CanonicalMessage(other); err != nil || d != d2 {
			t.Fatalf("%s and %s differ: %s, %s %v", s, other, c, again, err)
		}
	})
}
