package gateway

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// drawn is an answer as the parser may yield it: reasoning first, then text and calls
// in any order, cut into pieces anywhere.
func drawn(t *rapid.T) ([]piece, *reply) {
	var pieces []piece
	cut := func(s string, make func(part string) piece) {
		for _, part := range cutAnywhere(t, s) {
			pieces = append(pieces, make(part))
		}
	}
	m := message{Role: "assistant"}
	if m.Reasoning = rapid.SampledFrom([]string{"", "Hm.", "긴 생각\nand more"}).Draw(t, "reasoning"); m.Reasoning != "" {
		cut(m.Reasoning, func(s string) piece { return piece{delta: delta{Reasoning: s, Call: -1}} })
	}
	content := ""
	for range rapid.IntRange(0, 4).Draw(t, "parts") {
		if rapid.Bool().Draw(t, "text") {
			s := rapid.StringN(1, 12, -1).Draw(t, "content")
			content += s
			cut(s, func(s string) piece { return piece{delta: delta{Content: s, Call: -1}} })
			continue
		}
		n := len(m.Calls)
		c := toolCall{ID: "call_" + string(rune('a'+n)), Type: "function", Function: calledFunction{
			Name: rapid.SampledFrom([]string{"read", "now"}).Draw(t, "name"), Arguments: arguments(t),
		}}
		m.Calls = append(m.Calls, c)
		pieces = append(pieces, piece{delta: delta{Call: n, ID: c.ID, Name: c.Function.Name}})
		cut(c.Function.Arguments, func(s string) piece { return piece{delta: delta{Call: n, Arguments: s}} })
	}
	if content != "" || len(m.Calls) == 0 {
		m.Content = &content
	}
	r := &reply{Result: &schemas.Result{Session: "s1", Turn: "t1", Model: "tiny", Finish: "stop"}, Message: m, Finish: "stop"}
	if len(m.Calls) > 0 {
		r.Finish = "tool_calls"
	}
	return pieces, r
}

// arguments is an object as a model may write it.
func arguments(t *rapid.T) string {
	m := map[string]any{}
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"path", "n", "ünï", "nested"}), 0, 3, rapid.ID).Draw(t, "keys") {
		m[key] = rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.Int32(), func(n int32) any { return n }),
			rapid.Just(any([]any{1.5, nil, map[string]any{"a": "<b>"}})),
		).Draw(t, "value")
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return rapid.SampledFrom([]string{string(b), strings.ReplaceAll(string(b), `":`, `": `)}).Draw(t, "spelling")
}

// cutAnywhere cuts text between characters.
func cutAnywhere(t *rapid.T, s string) (out []string) {
	runes := []rune(s)
	for len(runes) > 0 {
		n := rapid.IntRange(1, len(runes)).Draw(t, "cut")
		out = append(out, string(runes[:n]))
		runes = runes[n:]
	}
	return out
}

// digestOf is the canonical digest by which lineage knows an answer again.
func digestOf(t *rapid.T, raw json.RawMessage) [16]byte {
	_, d, err := schemas.CanonicalMessage(raw)
	if err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return d
}

// onlyAnswer is the one message of the assistant's among messages.
func onlyAnswer(t *rapid.T, messages []json.RawMessage) json.RawMessage {
	var found []json.RawMessage
	for _, raw := range messages {
		var m struct{ Role string }
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		if m.Role == "assistant" {
			found = append(found, raw)
		}
	}
	if len(found) != 1 {
		t.Fatalf("an answer comes back as %d messages: %s", len(found), messages)
	}
	return found[0]
}

// dataOf decodes the data of all events.
func dataOf[T any](t *rapid.T, stream string) (out []T) {
	for line := range strings.SplitSeq(stream, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var v T
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		out = append(out, v)
	}
	return out
}

// TestMessagesComeBack: an answer that a client of the Messages API sends back, as it
// got it whole or put it together from a stream, is the answer that was given.
func TestMessagesComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pieces, r := drawn(rt)
		given, e := plain(r.Message)
		if e != nil {
			rt.Fatal(e.Message)
		}
		c := called(&messagesMore{})
		whole, _ := anthropic{}.whole(c, r).(messagesAnswer)
		streamed := blocksOf(rt, spoken(t, anthropic{}, c, pieces, r, nil))
		for _, blocks := range [][]messagesBlock{whole.Content, streamed} {
			if len(blocks) == 0 {
				continue // an empty answer; clients do not send one back
			}
			body, e := plain(map[string]any{"messages": []any{
				map[string]any{"role": "user", "content": "x"}, map[string]any{"role": "assistant", "content": blocks}, map[string]any{"role": "user", "content": "y"},
			}})
			if e != nil {
				rt.Fatal(e.Message)
			}
			turn, e := translated(t, string(body), messagesOptions{})
			if e != nil {
				rt.Fatalf("%s: %s", e.Message, body)
			}
			if back := onlyAnswer(rt, turn.Messages); digestOf(rt, back) != digestOf(rt, given) {
				rt.Fatalf("given %s\nback  %s", given, back)
			}
		}
	})
}

// blocksOf puts the blocks of a stream together, as Anthropic's client does.
func blocksOf(t *rapid.T, stream string) (out []messagesBlock) {
	type event struct {
		Type  string
		Index int
		Block messagesBlock `json:"content_block"`
		Delta struct {
			Type, Text, Thinking, Signature string
			Partial                         string `json:"partial_json"`
		}
	}
	for _, e := range dataOf[event](t, stream) {
		switch e.Type {
		case "content_block_start":
			if e.Index != len(out) {
				t.Fatalf("block %d begins behind %d others", e.Index, len(out))
			}
			e.Block.Input = nil
			out = append(out, e.Block)
		case "content_block_delta":
			b := &out[e.Index]
			switch e.Delta.Type {
			case "text_delta":
				*b.Text += e.Delta.Text
			case "thinking_delta":
				*b.Thinking += e.Delta.Thinking
			case "signature_delta":
				*b.Signature += e.Delta.Signature
			case "input_json_delta":
				b.Input = append(b.Input, e.Delta.Partial...)
			}
		}
	}
	return out
}

// TestResponsesComeBack: the same for items of the Responses API.
func TestResponsesComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pieces, r := drawn(rt)
		given, e := plain(r.Message)
		if e != nil {
			rt.Fatal(e.Message)
		}
		c := called(&responsesMore{digest: "0", req: &responsesRequest{}})
		whole, _ := responses{}.whole(c, r).(*response)
		events := dataOf[struct {
			Type     string
			Seq      int `json:"sequence_number"`
			Item     responseItem
			Response response
		}](rt, spoken(t, responses{}, c, pieces, r, nil))
		var done []responseItem
		for i, e := range events {
			if e.Seq != i {
				rt.Fatalf("event %d has number %d", i, e.Seq)
			}
			if e.Type == "response.output_item.done" {
				done = append(done, e.Item)
			}
		}
		last := events[len(events)-1]
		if last.Type != "response.completed" {
			rt.Fatalf("the last event is %s", last.Type)
		}
		for _, items := range [][]responseItem{whole.Output, done, last.Response.Output} {
			input := []any{map[string]any{"role": "user", "content": "x"}}
			for _, it := range items {
				input = append(input, it)
			}
			body, e := plain(map[string]any{"input": append(input, map[string]any{"role": "user", "content": "y"})})
			if e != nil {
				rt.Fatal(e.Message)
			}
			turn, e := responded(t, string(body))
			if e != nil {
				rt.Fatalf("%s: %s", e.Message, body)
			}
			if back := onlyAnswer(rt, turn.Messages); digestOf(rt, back) != digestOf(rt, given) {
				rt.Fatalf("given %s\nback  %s", given, back)
			}
		}
	})
}

// TestStreamsOfAnyCut: however an answer is cut into pieces, the parts of a stream
// are the whole text, reasoning and arguments.
func TestStreamsOfAnyCut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pieces, r := drawn(rt)
		var text, reasoning string
		var calls []string
		for _, b := range blocksOf(rt, spoken(t, anthropic{}, called(&messagesMore{}), pieces, r, nil)) {
			switch b.Type {
			case "text":
				text += *b.Text
			case "thinking":
				reasoning += *b.Thinking
			case "tool_use":
				calls = append(calls, b.Name+string(b.Input))
			}
		}
		want := ""
		if r.Message.Content != nil {
			want = *r.Message.Content
		}
		var wantCalls []string
		for _, c := range r.Message.Calls {
			wantCalls = append(wantCalls, c.Function.Name+c.Function.Arguments)
		}
		if text != want || reasoning != r.Message.Reasoning || !slices.Equal(calls, wantCalls) {
			rt.Fatalf("the stream has %q, %q, %q; the message is %+v", text, reasoning, calls, r.Message)
		}
	})
}
