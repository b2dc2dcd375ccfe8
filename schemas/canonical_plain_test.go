package schemas

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzPlainMessage: what the short way reads, the long way reads alike.
func FuzzPlainMessage(f *testing.F) {
	for _, s := range []string{
		`{"role":"user","content":"a"}`, ` { "content" : "세션 \\u00e9\n\\"" , "role":"user" } `, `{"role":"user"}`, `{"role":"user","role":"a"}`,
		`{"role":"user","content":"a",}`, `{"role":"user" "content":"a"}`, `{"role":"user","content":"\\x"}`, `{"role":""}`, `{}`, `{"role":"user","content":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		short, ok := plainMessage(raw)
		if !ok {
			return
		}
		long, err := canonicalOfAny(json.RawMessage(raw))
		if err != nil || !bytes.Equal(short.JSON, long.JSON) || short.Digest != long.Digest || short.Role != long.Role || long.Media || long.Calls != nil || long.ToolCall != "" {
			t.Fatalf("%q: %+v, %+v %v", raw, short, long, err)
		}
	})
}

// TestPlainMessage: messages of text take the short way, however they are written.
func TestPlainMessage(t *testing.T) {
	for s, want := range map[string]bool{
		`{"role":"user","content":"a"}`: true, `{ "content":"a\nb", "role":"user" }`: true, `{"role":"user"}`: true,
		`{"role":"user","content":null}`: false, `{"role":"user","content":"a","name":"b"}`: false, `{"role":"user","content":["a"]}`: false,
		`{"role":"user","content":"a"} {}`: false, `{"role":"user","content":"a`: false, `{`: false, `{}`: false,
	} {
		if _, ok := plainMessage([]byte(s)); ok != want {
			t.Errorf("%s: %t", s, ok)
		}
	}
}
