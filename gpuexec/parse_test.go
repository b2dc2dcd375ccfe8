package gpuexec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestParse: every frame, those that are sent again included, names the parser, and
// the result has the message that the worker made.
func TestParse(t *testing.T) {
	h := newHost(t, nil)
	h.assign(1, schemas.RoleDecode)
	j := job("u1", schemas.StageDecode, 1, 10, 20)
	j.Ready.Parse = "hermes+tools"
	h.job(j)
	h.complete() // open
	h.complete() // the first tokens
	h.step(schemas.Msg{Kind: schemas.KindBus, Err: "gone"})
	h.again = 3
	h.step(schemas.Msg{Kind: schemas.KindBus})
	frames := h.take(schemas.KindFrame)
	if len(frames) < 2 {
		t.Fatalf("%d frames", len(frames))
	}
	for _, m := range frames {
		if m.Frame.Parse != "hermes+tools" {
			t.Errorf("a frame names the parser %q", m.Frame.Parse)
		}
	}
}

// TestMessageOfResult: a message that does not fit beside its text is left out, so
// that the result can be published.
func TestMessageOfResult(t *testing.T) {
	for text, fits := range map[string]bool{
		"b":                           true,
		strings.Repeat("x", 400<<10):  true,
		strings.Repeat("x", 600<<10):  false,
		strings.Repeat("<", 60<<10):   true,
		strings.Repeat("\n<", 90<<10): false,
	} {
		h := newHost(t, nil)
		h.assign(1, schemas.RoleDecode)
		j := job("u1", schemas.StageDecode, 1, 10, 20)
		j.Ready.Parse = "hermes"
		h.job(j)
		h.complete() // open
		content, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		message := `{"role":"assistant","content":` + string(content) + `}`
		d := schemas.OpDone{ID: h.op.ID, TookNS: 1, Decode: &schemas.DecodeDone{Steps: 1, Rows: []schemas.DecodeRow{{
			Tokens: []int32{100}, Text: "a", Finish: "tool_calls", Answer: text, Message: []byte(message),
		}}}}
		h.op = nil
		h.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &d})
		h.run()
		if len(h.results) != 1 {
			t.Fatalf("%d results", len(h.results))
		}
		r := h.confirm(0, "")
		if (string(r.Message) == message) != fits || (r.Message == nil) == fits {
			t.Errorf("%d bytes of text, %d of message: %.60s", len(text), len(message), r.Message)
		}
		if r.Parse != "hermes" || r.Finish != "tool_calls" {
			t.Errorf("parser %q, finish %q", r.Parse, r.Finish)
		}
		if _, err := schemas.Encode(r); err != nil {
			t.Errorf("%d bytes of text: %v", len(text), err)
		}
	}
}
