package worker_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/schemas"
	"pgregory.net/rapid"
)

// fakeMarkers is an alphabet in which two bytes are control tokens with the markers
// of calls, and a third one is a control token that stays hidden.
type fakeMarkers struct{ nullengine.Vocab }

var controls = map[int32]string{1: "<tool_call>", 2: "</tool_call>", 3: "<|other|>"}

func (v fakeMarkers) Piece(token int32, special bool) []byte {
	if text, ok := controls[token]; ok {
		if special {
			return []byte(text)
		}
		return nil
	}
	return v.Vocab.Piece(token, special)
}

func (v fakeMarkers) Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error) {
	if parseSpecial {
		for id, c := range controls {
			text = strings.ReplaceAll(text, c, string(rune(id)))
		}
	}
	return v.Vocab.Tokenize(text, addSpecial, false)
}

// forced is a turn whose answer is text.
func forced(parse, text string) *schemas.Ready {
	r := turn(65, 4096)
	r.Parse = parse
	for i := range len(text) {
		r.Force = append(r.Force, int32(text[i]))
	}
	r.MaxNew = len(text) + 1
	return r
}

// told is what a reader of frames made of them.
type told struct {
	text, message, finish string
}

func tell(t testing.TB, r *rig, ready *schemas.Ready, steps int) (live told, last schemas.DecodeRow) {
	t.Helper()
	if o := r.open(&schemas.OpenOp{Ready: ready}); o.Missing > 0 {
		r.prefill(0, 1<<20)
	}
	spec, err := chat.ParseSpec(ready.Parse)
	if err != nil {
		t.Fatal(err)
	}
	p := chat.NewParser(spec, ready.Job)
	for live.finish == "" {
		d := r.do(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0}, MaxSteps: steps, MaxNS: 1 << 40}})
		if d.Err != "" {
			t.Fatal(d.Err)
		}
		last = d.Decode.Rows[0]
		live.text += last.Text
		live.finish = last.Finish
		p.Add(last.Text)
	}
	p.End()
	live.message = string(p.Message())
	return live, last
}

func TestMessage(t *testing.T) {
	const body = `{"name":"f","arguments":{"x":1}}`
	const call, tokens = "<tool_call>" + body + "</tool_call>", "\x01" + body + "\x02"
	id := chat.CallID(chat.Hermes, schemas.JobID("t", "s", "u"), 0)
	one := `{"role":"assistant","content":null,"tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}`
	for _, c := range []struct{ parse, tokens, text, message, finish string }{
		{"", call, call, "", "stop"},
		{"", tokens + "\x03", body, "", "stop"},
		{"hermes+tools", call, call, one, "tool_calls"},
		{"hermes+tools", tokens, call, one, "tool_calls"},
		{"hermes+tools", "\x03" + tokens, call, one, "tool_calls"},
		{"hermes+tools", "plain", "plain", `{"role":"assistant","content":"plain"}`, "stop"},
		{"llama3+tools", tokens, body, one, "tool_calls"}, // without markers, which are not Llama's
	} {
		live, last := tell(t, rigOf(t, null(t), fakeMarkers{}, newTier()), forced(c.parse, c.tokens), 3)
		if live.text != c.text || last.Answer != c.text || string(last.Message) != c.message || last.Finish != c.finish {
			t.Errorf("%q %q: text %q, message %s, finish %s", c.parse, c.tokens, live.text, last.Message, last.Finish)
		}
		if c.message != "" && (live.message != c.message || !json.Valid([]byte(live.message))) {
			t.Errorf("%q %q: a reader made %s", c.parse, c.tokens, live.message)
		}
	}
}

func null(t testing.TB) *nullengine.Engine {
	e, err := nullengine.New(nullengine.Options{Slots: 4, Context: 8192})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestBadParse: a parser that this executor does not know is refused with a reason.
func TestBadParse(t *testing.T) {
	r := rigOf(t, null(t), nullengine.Vocab{}, newTier())
	d := r.do(&schemas.Op{Open: &schemas.OpenOp{Stage: schemas.StageDecode, Ready: forced("other+tools", "x")}})
	if d.Code != schemas.CodeInvalid || !strings.Contains(d.Err, "family") {
		t.Errorf("%s: %s", d.Code, d.Err)
	}
}

// TestFramesAreTheMessage: whatever is generated, and however it is cut, who parses
// the pieces has the message of the result.
func TestFramesAreTheMessage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		piece := rapid.SampledFrom([]string{
			"<think>", "</think>", "\x01", "\x02", "\x03", `{"name":"f","arguments":{"a":"한"}}`, "text ", "\n", "😀", "{", "}", "[TOOL_CALLS]", `f[ARGS]{"a":1}`, "\xff", "<tool_call>", "<",
		})
		text := strings.Join(rapid.SliceOfN(piece, 1, 12).Draw(rt, "pieces"), "")
		family := rapid.SampledFrom(chat.Families()).Draw(rt, "family")
		parse := chat.Spec{Family: family, Tools: rapid.Bool().Draw(rt, "tools"), Thinks: rapid.Bool().Draw(rt, "thinks")}.String()
		live, last := tell(t, rigOf(t, null(t), fakeMarkers{}, newTier()), forced(parse, text), rapid.IntRange(1, 40).Draw(rt, "steps"))
		if live.message != string(last.Message) || live.text != last.Answer {
			rt.Fatalf("%s %q: frames %q say\n%s\nthe result says\n%s", parse, text, live.text, live.message, last.Message)
		}
	})
}

// TestMessageAfterCut: wherever an attempt ends, the next one goes on at the byte
// where the text ended, and says what the whole answer means.
func TestMessageAfterCut(t *testing.T) {
	const tokens = "<think>왜?</think>\nI look.\x01{\"name\":\"f\",\"arguments\":{\"s\":\"한 😀\"}}\x02\x03"
	ready := forced("hermes+tools", tokens)
	whole, want := tell(t, rigOf(t, null(t), fakeMarkers{}, newTier()), ready, 3)
	if want.Finish != "tool_calls" || !strings.Contains(string(want.Message), `"content":"I look."`) {
		t.Fatalf("%s %s", want.Finish, want.Message)
	}
	for cut := range len(ready.Force) {
		second := rigOf(t, null(t), fakeMarkers{}, newTier())
		if o := second.open(&schemas.OpenOp{Ready: ready, Attempt: 2, Delivered: ready.Force[:cut]}); o.Missing > 0 {
			second.prefill(0, 1<<20)
		}
		text, at := "", -1
		var last schemas.DecodeRow
		for last.Finish == "" {
			d := second.do(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0}, MaxSteps: 2, MaxNS: 1 << 40}})
			if d.Err != "" {
				t.Fatal(d.Err)
			}
			last = d.Decode.Rows[0]
			if at < 0 && last.Text != "" {
				at = last.TextAt
			}
			text += last.Text
		}
		if last.Answer != whole.text || string(last.Message) != string(want.Message) || last.Finish != want.Finish {
			t.Fatalf("cut %d: %s %q %s", cut, last.Finish, last.Answer, last.Message)
		}
		if at >= 0 && whole.text[at:] != text {
			t.Fatalf("cut %d: text at %d is %q of %q", cut, at, text, whole.text)
		}
	}
}
