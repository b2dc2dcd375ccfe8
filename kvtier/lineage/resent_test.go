package lineage

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// TestResent: an answer that comes back is recognised however the client spells
// it, and its very tokens stand in the next prompt, whatever the template makes of
// it.
func TestResent(t *testing.T) {
	const call = `{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1,\"b\":\"서울\"}"}}]}`
	result := func(id string) string { return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"ok"}`, id) }
	for _, c := range []struct {
		name, text, message string
		back                []string
		want                string
		rewrites            Rewrites
	}{
		{"text", "Hi", `{"role":"assistant","content":"Hi"}`, []string{`{"content":[{"type":"text","text":"Hi"}],"role":"assistant","refusal":null}`, user("go")}, "{Hi|}<user>go|", Rewrites{}},
		{"white space", "Hi ", `{"role":"assistant","content":"Hi"}`, []string{`{"role":"assistant","content":"Hi"}`, user("go")}, "{Hi |}<user>go|", Rewrites{Space: 1}},
		{"call", "f{a:1}", call, []string{
			`{"tool_calls":[{"type":"function","function":{"arguments":"{ \"b\": \"서울\", \"a\": 1.0 }","name":"f"},"id":"call_1"}],"role":"assistant"}`, result("call_1"),
		}, "{f{a:1}|}<tool>ok|", Rewrites{Calls: 1}},
		{"call with another id", "f{a:1}", call, []string{
			`{"role":"assistant","content":"","tool_calls":[{"id":"x9","type":"function","function":{"name":"f","arguments":"{\"a\":1,\"b\":\"서울\"}"}}]}`, result("x9"),
		}, "{f{a:1}|}<tool>ok|", Rewrites{Calls: 1}},
		// The template drops the reasoning, so nothing that was generated remains.
		{"reasoning", "~hmHi", `{"role":"assistant","content":"Hi","reasoning_content":"hm"}`, []string{`{"role":"assistant","content":"Hi"}`, user("go")}, "Hi|<user>go|", Rewrites{Reasoning: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.chat("s", "u1", user("begin"))
			w.answer("u1", c.text, "|", says(c.message))
			w.chat("s", "u2", append([]string{user("begin")}, c.back...)...)
			want(t, "second", w.prompt("u2"), "<user>begin|<assistant>"+c.want+"<assistant>")
			want(t, "branch", w.ready["u2"].Branch, "main")
			if got := w.l.Counts().Rewrites; got != c.rewrites {
				t.Errorf("rewrites %+v, want %+v", got, c.rewrites)
			}
			// And again, as a third turn: with what was stored, nothing is new.
			w.answer("u2", "Ok", "|")
			before := w.l.Counts().Tokenized
			w.chat("s", "u3", append(append([]string{user("begin")}, c.back...), message("assistant", "Ok"), user("!"))...)
			if n := w.l.Counts().Tokenized - before; n != uint64(len("<user>!|<assistant>")) {
				t.Errorf("the third turn tokenized %d bytes: %s", n, w.prompt("u3"))
			}
		})
	}
}

// TestReasoningKept: what a template writes of earlier reasoning is rendered from
// what was produced here, though clients drop it.
func TestReasoningKept(t *testing.T) {
	w := newWorld(t, nil)
	w.keeps = true
	w.chat("s", "u1", user("begin"))
	w.answer("u1", "Hi~hm", "|", says(`{"role":"assistant","content":"Hi","reasoning_content":"hm"}`))
	w.chat("s", "u2", user("begin"), message("assistant", "Hi"), user("go"))
	want(t, "second", w.prompt("u2"), "<user>begin|<assistant>{Hi~hm|}<user>go|<assistant>")
}

// spelling writes a message as some client would.
func spelling(t *rapid.T, raw string) string {
	var m map[string]any
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		t.Fatal(err)
	}
	delete(m, "reasoning_content")
	if s, ok := m["content"].(string); ok && rapid.Bool().Draw(t, "parts") {
		m["content"] = []any{map[string]any{"type": "text", "text": s}}
	} else if m["content"] == nil || m["content"] == "" {
		switch rapid.IntRange(0, 2).Draw(t, "empty") {
		case 0:
			m["content"] = nil
		case 1:
			m["content"] = ""
		case 2:
			delete(m, "content")
		}
	}
	if calls, ok := m["tool_calls"].([]any); ok {
		for _, c := range calls {
			f := c.(map[string]any)["function"].(map[string]any)
			var args any
			if err := json.Unmarshal([]byte(f["arguments"].(string)), &args); err != nil {
				t.Fatal(err)
			}
			indent := rapid.StringOfN(rapid.SampledFrom([]rune(" \t")), 0, 4, -1).Draw(t, "indent")
			b, err := json.MarshalIndent(args, "", indent)
			if err != nil {
				t.Fatal(err)
			}
			f["arguments"] = string(b)
		}
	}
	if rapid.Bool().Draw(t, "more") {
		m["refusal"], m["annotations"] = nil, []any{}
	}
	b, err := json.MarshalIndent(m, "", rapid.SampledFrom([]string{"", " "}).Draw(t, "style"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAnySpellingIsRecognised: a conversation with calls whose history is sent
// again with every turn, each time spelt in another way, stays on one branch, and
// only what is new is ever tokenized.
func TestAnySpellingIsRecognised(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, nil)
		text := rapid.StringMatching(`[ -{}서울\n"\\]{0,12}`)
		var history []string
		last := user(text.Draw(rt, "first"))
		for n := range rapid.IntRange(2, 6).Draw(rt, "turns") {
			history = append(history, last)
			sent := make([]string, len(history))
			for i, m := range history {
				sent[i] = spelling(rt, m)
			}
			id := fmt.Sprint("u", n)
			before := w.l.Counts()
			w.chat("s", id, sent...)
			r := w.ready[id]
			if r == nil || r.Branch != "main" {
				rt.Fatalf("turn %d is ready as %+v: %+v", n, r, w.results["s/"+id])
			}
			m, err := readFake(json.RawMessage(last))
			if err != nil {
				rt.Fatal(err)
			}
			fresh := len("<" + m.role + ">" + strings.Join(m.parts, "") + "|<assistant>")
			if got := w.l.Counts().Tokenized - before.Tokenized; got != uint64(fresh) {
				rt.Fatalf("turn %d tokenized %d bytes, %d are new: %s", n, got, fresh, w.prompt(id))
			}
			if rapid.Bool().Draw(rt, "call") {
				args, _ := json.Marshal(map[string]any{"q": text.Draw(rt, "q"), "n": rapid.Int32().Draw(rt, "n")})
				quotedArgs, _ := json.Marshal(string(args))
				answer := fmt.Sprintf(`{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c%d","type":"function","function":{"name":"f","arguments":%s}}]}`, n, quotedArgs)
				w.answer(id, "f"+string(args), "|", says(answer))
				history = append(history, answer)
				last = fmt.Sprintf(`{"role":"tool","tool_call_id":"c%d","content":"ok"}`, n)
			} else {
				content := strings.TrimSpace(text.Draw(rt, "answer"))
				w.answer(id, content+"\n", "|", says(message("assistant", content)))
				history = append(history, message("assistant", content))
				last = user(text.Draw(rt, "user"))
			}
		}
		if n := len(w.l.sessions["t.s"].branches); n != 1 {
			rt.Fatalf("%d branches", n)
		}
	})
}

// TestMedia: an image is part of the key of every block that it touches, and of
// none before; a text that is the same for two images is not taken for one.
func TestMedia(t *testing.T) {
	image := func(ref string) string {
		return fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":%q},{"type":"image_url","image_url":{"url":%q}}]}`, strings.Repeat("look ", 30), mediaRef+ref)
	}
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	w := newWorld(t, nil)
	w.chat("s", "u1", image(a))
	w.answer("u1", "a cat", "|")
	w.chat("s", "u2", image(a), message("assistant", "a cat"), user("sure?"))
	first := w.ready["u2"].Prompt
	w.answer("u2", "yes", "|")
	if len(first.Media) != 1 || first.Media[0].Ref != mediaRef+a || first.Media[0].Offset != len("<user>")+150 || first.TailFrom < 128 {
		t.Errorf("the same image: %+v", first)
	}
	w.chat("s", "u3", image(b), message("assistant", "a cat"), user("sure?"))
	other := w.ready["u3"].Prompt
	if len(other.Media) != 1 || other.Media[0].Digest == first.Media[0].Digest || other.TailFrom != 128 {
		t.Errorf("another image: %d tokens are known, media %+v", other.TailFrom, other.Media)
	}
	if m := w.ready["u3"].Miss; m.Known >= len("<user>")+150+8 || m.Message != 0 || m.Byte < 150 {
		t.Errorf("%+v", m)
	}
	// Media that are not fully described: nothing is known, nothing is kept.
	w.uncached = true
	w.chat("r", "v1", image(a))
	w.answer("v1", strings.Repeat("a cat ", 30), "|")
	w.chat("r", "v2", image(a), message("assistant", strings.Repeat("a cat ", 30)), user("sure?"))
	if p := w.ready["v2"].Prompt; !p.Uncached || p.Path != nil || p.TailFrom != 0 || w.ready["v2"].Miss.Cause != schemas.MissNotCached {
		t.Errorf("not cached: %+v, %+v", p, w.ready["v2"].Miss)
	}
}

// TestCallIDsChangeHands: a client that issues ids of its own may give one that was a
// call's to the call beside it. The result is that call's then, though its bytes are
// as they were.
func TestCallIDsChangeHands(t *testing.T) {
	calls := func(f, g string) string {
		return fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":%q,"type":"function","function":{"name":"f","arguments":"{}"}},{"id":%q,"type":"function","function":{"name":"g","arguments":"{}"}}]}`, f, g)
	}
	const result = `{"role":"tool","tool_call_id":"b","content":"ok"}`
	for _, again := range []bool{false, true} {
		w := newWorld(t, nil)
		w.chat("s", "u1", user("begin"))
		w.answer("u1", "f{}g{}", "|", says(calls("a", "b")))
		w.chat("s", "u2", user("begin"), calls("a", "b"), result)
		w.answer("u2", "Ok", "|")
		if again {
			snap, seqs := w.snapshot()
			w.restart(snap, seqs)
		}
		w.chat("s", "u3", user("begin"), calls("b", "a"), result)
		s := w.l.sessions["t.s"]
		e := s.turns["u3"].entries[2]
		if e.toolCall != "a" {
			t.Errorf("after a restart %t: the result answers call %q, which is g's", again, e.toolCall)
		}
		w.answer("u3", "Ok", "|")
		w.chat("s", "u4", user("begin"), calls("a", "b"), result, message("assistant", "Ok"), user("go"))
		if got := s.turns["u4"]; got == nil || w.ready["u4"] == nil || w.l.sessions["t.s"].turns["u4"].entries[2].toolCall != "b" {
			t.Errorf("after a restart %t: %+v", again, got)
		}
	}
}
