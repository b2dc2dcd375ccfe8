package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/gpuexec/chat"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// parsed answers with that text in frames of n bytes, and with the message that a
// decoding executor would make of it.
func parsed(spec, text string, n int) func(*fake, turns.Ref, *schemas.Turn) {
	return func(k *fake, r turns.Ref, _ *schemas.Turn) {
		out, i := &schemas.Result{
			Header: schemas.H(), Tenant: r.Tenant, Session: r.Session, Turn: r.Turn, Branch: "main", Job: schemas.JobID(r.Tenant, r.Session, r.Turn),
			Attempt: 1, Status: schemas.StatusOK, Model: "tiny", Text: text, Finish: "stop", Parse: spec,
		}, 0
		for at := 0; at < len(text); i++ {
			end := min(at+n, len(text))
			for !utf8.RuneStart((text + "x")[end]) {
				end++
			}
			k.publish(schemas.OutSubject(r.Tenant, r.Session, r.Turn), &schemas.Frame{Header: schemas.H(), Attempt: 1, First: i, Tokens: schemas.Tokens{int32(i)}, TextAt: at, Text: text[at:end], Parse: spec})
			out.Tokens = append(out.Tokens, int32(i))
			at = end
		}
		s, err := chat.ParseSpec(spec)
		if err != nil {
			k.t.Error(err)
		}
		p := chat.NewParser(s, out.Job)
		p.Add(text)
		p.End()
		if out.Message = p.Message(); p.Calls() > 0 {
			out.Finish = "tool_calls"
		}
		k.publish(schemas.ResultSubject(r.Tenant, r.Session, r.Turn), out)
	}
}

const (
	thought = "The user wants 날씨.\nTwo cities."
	calls   = `<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris", "days": [1, 2]}}
</tool_call>
<tool_call>
{"name": "get_weather", "arguments": {"city": "서울"}}
</tool_call>`
)

// TestToolCalls: the parts of a stream are the whole message, whatever frames its
// text is cut into, and null, index and finish_reason are where OpenAI has them.
func TestToolCalls(t *testing.T) {
	for _, c := range []struct {
		name, spec, text   string
		content, reasoning any
		calls              int
		finish             string
	}{
		{"content", "hermes+tools", "Hé 안녕", "Hé 안녕", nil, 0, "stop"},
		{"calls only", "hermes+tools", calls, nil, nil, 2, "tool_calls"},
		{"reasoning and calls", "hermes+tools+think", thought + "\n</think>\n\n" + calls, nil, thought, 2, "tool_calls"},
		{"all", "hermes+tools", "<think>\n" + thought + "\n</think>\n\nI look.\n" + calls, "I look.", thought, 2, "tool_calls"},
		{"one call", "hermes+tools+one", calls, nil, nil, 1, "tool_calls"},
		{"reasoning and content", "hermes+think", thought + "\n</think>\n\nDone.", "Done.", thought, 0, "stop"},
		{"broken", "hermes+tools", `<tool_call>{"name": 7}</tool_call>`, `<tool_call>{"name": 7}</tool_call>`, nil, 0, "stop"},
		{"an unknown parser", "", calls, calls, nil, 0, "stop"},
		{"nothing", "hermes+tools", "", "", nil, 0, "stop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFake(t, Options{})
			head := []string{headerSession, "s", headerTurn, "t"}
			k.scripts["hi"] = parsed(c.spec, c.text, 3)
			whole := k.post("/v1/chat/completions", chatBody("hi", ""), head...).object(t)
			m, _ := at(whole, "choices", 0, "message").(map[string]any)
			list, _ := m["tool_calls"].([]any)
			if m["content"] != c.content || m["reasoning_content"] != c.reasoning || len(list) != c.calls || at(whole, "choices", 0, "finish_reason") != c.finish {
				t.Errorf("the whole answer is %v", whole)
			}
			if r, has := m["refusal"]; !has || r != nil || m["role"] != "assistant" {
				t.Errorf("the message is %v", m)
			}
			delete(m, "refusal")
			for n := range 40 {
				k.scripts["hi"] = parsed(c.spec, c.text, n+1)
				turn := fmt.Sprintf("t%d", n)
				chunks, done := k.post("/v1/chat/completions", chatBody("hi", `,"stream":true`), headerSession, "s", headerTurn, turn).events(t)
				got := assemble(t, chunks)
				want := relabel(m)
				if d := cmp.Diff(want, got); d != "" || !done {
					t.Fatalf("frames of %d bytes, done %v (-whole +stream):\n%s", n+1, done, d)
				}
				if last := chunks[len(chunks)-1]; at(last, "choices", 0, "finish_reason") != c.finish {
					t.Errorf("the last chunk is %v", last)
				}
			}
		})
	}
}

// assemble puts the chunks of a stream together, as clients do, and checks what
// they rely on.
func assemble(t *testing.T, chunks []map[string]any) map[string]any {
	t.Helper()
	out := map[string]any{"content": nil}
	var list []any
	for i, c := range chunks {
		d, _ := at(c, "choices", 0, "delta").(map[string]any)
		if role, has := d["role"]; has != (i == 0) || has && role != "assistant" {
			t.Errorf("chunk %d has role %v", i, role)
		} else if has {
			out["role"] = role
		}
		for _, key := range []string{"content", "reasoning_content"} {
			if s, ok := d[key].(string); ok {
				was, _ := out[key].(string)
				out[key] = was + s
			}
		}
		parts, _ := d["tool_calls"].([]any)
		for _, p := range parts {
			index := int(at(p, "index").(float64))
			arguments := at(p, "function", "arguments").(string)
			if index == len(list) {
				if at(p, "type") != "function" || at(p, "function", "name") == nil || at(p, "id") == "" {
					t.Errorf("a call begins with %v", p)
				}
				list = append(list, map[string]any{"id": at(p, "id"), "type": "function", "function": map[string]any{"name": at(p, "function", "name"), "arguments": ""}})
			} else if index != len(list)-1 || at(p, "id") != nil || at(p, "type") != nil || at(p, "function", "name") != nil {
				t.Errorf("call %d goes on with %v, there are %d", index, p, len(list))
			}
			f := at(list[index], "function").(map[string]any)
			f["arguments"] = f["arguments"].(string) + arguments
		}
	}
	if list != nil {
		out["tool_calls"] = list
	}
	return relabel(out)
}

// relabel replaces the ids of calls, which depend on the turn, by their place.
func relabel(m map[string]any) map[string]any {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	list, _ := out["tool_calls"].([]any)
	for i, c := range list {
		c.(map[string]any)["id"] = fmt.Sprint(i)
	}
	return out
}

// TestCallIDs: a stream and the whole answer of one turn name a call alike, and
// two turns do not.
func TestCallIDs(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["hi"] = parsed("hermes+tools", calls, 5)
	ids := map[any]bool{}
	for _, turn := range []string{"t1", "t2"} {
		whole := k.post("/v1/chat/completions", chatBody("hi", ""), headerSession, "s", headerTurn, turn).object(t)
		id := at(whole, "choices", 0, "message", "tool_calls", 1, "id")
		chunks, _ := k.post("/v1/chat/completions", chatBody("hi", `,"stream":true`), headerSession, "s", headerTurn, turn).events(t)
		found := false
		for _, c := range chunks {
			found = found || at(c, "choices", 0, "delta", "tool_calls", 0, "id") == id
		}
		if s, _ := id.(string); !found || s == "" || ids[id] {
			t.Errorf("turn %s: id %v, in the stream %v", turn, id, found)
		}
		ids[id] = true
	}
}

// TestCompletionsAreNotParsed: the older endpoint shows text as it was generated.
func TestCompletionsAreNotParsed(t *testing.T) {
	k := newFake(t, Options{})
	k.scripts["hi"] = parsed("hermes+tools", calls, 7)
	if m := k.post("/v1/completions", `{"prompt":"hi"}`).object(t); at(m, "choices", 0, "text") != calls {
		t.Errorf("whole: %v", m)
	}
	var text strings.Builder
	chunks, _ := k.post("/v1/completions", `{"prompt":"hi","stream":true}`).events(t)
	for _, c := range chunks {
		s, _ := at(c, "choices", 0, "text").(string)
		text.WriteString(s)
	}
	if text.String() != calls {
		t.Errorf("stream: %q", text.String())
	}
}
