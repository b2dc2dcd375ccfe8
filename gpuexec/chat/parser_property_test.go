package chat

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// fragments are what answers are drawn from: markers of all families, pieces of
// calls, and text that resembles them.
var fragments = func() []string {
	out := []string{
		`{"name":"f","arguments":{"a":"한 \"}"}}`, `{"name":"f","parameters":{}}`, `{"arguments":{"b":[1,{}]},"name":"g"}`, `{"name":`, `"f"`, `,`, `}`, `{`, `]`, `[`,
		`{"x":1}`, "{\"s\":\"a\nb\"}", "functions.f:0", "name", "f\n", "\n", " ", "text", "😀", "한국어", "\xff", "\xed\x95", "12", "null", "```json\n", "```", "; ", ">", "<", "</", "<|", "<｜",
		"</parameter>", "</function>", "<parameter=a>", "<tool", "_call>", "=",
	}
	for _, f := range Families() {
		out = append(out, Markers(f)...)
	}
	return out
}()

// TestEveryCutOfAnything: whatever a model writes and however it is cut, the deltas
// are the same message, and arguments are the beginning of JSON.
func TestEveryCutOfAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		spec := Spec{
			Family: rapid.SampledFrom(Families()).Draw(rt, "family"), Tools: rapid.IntRange(0, 4).Draw(rt, "tools") > 0,
			Thinks: rapid.Bool().Draw(rt, "thinks"), One: rapid.Bool().Draw(rt, "one"),
		}
		own := append(Markers(spec.Family), fragments[:30]...)
		piece := rapid.OneOf(rapid.SampledFrom(own), rapid.SampledFrom(own), rapid.SampledFrom(fragments))
		text := strings.Join(rapid.SliceOfN(piece, 0, 14).Draw(rt, "pieces"), "")
		checkAnswer(t, rt.Fatalf, spec, text)
	})
}

func checkAnswer(t testing.TB, fatal func(string, ...any), spec Spec, text string) {
	t.Helper()
	want := parse(t, spec.String(), text)
	var bytes []string
	for i := range len(text) {
		bytes = append(bytes, text[i:i+1])
	}
	for _, pieces := range [][]string{bytes, {text[:len(text)/2], text[len(text)/2:]}, {text[:len(text)/3], "", text[len(text)/3:]}} {
		if got := parse(t, spec.String(), pieces...); got.String() != want.String() {
			fatal("%s %q as %q\n%v\nuncut\n%v", spec, text, pieces, got, want)
		}
	}
	if spec.One && len(want.calls) > 1 || !spec.Tools && len(want.calls) > 0 {
		fatal("%s %q\n%v", spec, text, want)
	}
	for _, c := range want.calls {
		_, arguments, _ := strings.Cut(c, " ")
		s := scanner{}
		for i := range len(arguments) {
			if !s.next(arguments[i]) {
				fatal("%s %q\narguments %q stop being JSON at byte %d", spec, text, arguments, i)
			}
		}
	}
	for _, s := range []string{want.content, want.reasoning, strings.Join(want.calls, "")} {
		if !utf8.ValidString(s) {
			fatal("%s %q: %q is no UTF-8", spec, text, s)
		}
	}
	if !spec.Tools && !spec.Thinks && !strings.Contains(text, "hink>") && !strings.Contains(text, "THINK]") && want.content != strings.ToValidUTF8(text, "\ufffd") {
		// Invalid bytes count one by one, which ToValidUTF8 does not do.
		if utf8.ValidString(text) {
			fatal("%s %q became %q", spec, text, want.content)
		}
	}
}

func FuzzParser(f *testing.F) {
	f.Add(uint8(0), `<tool_call>{"name":"f","arguments":{}}</tool_call>`)
	f.Add(uint8(17), "<think>a</think>"+`[TOOL_CALLS]f[ARGS]{"x":"`)
	f.Add(uint8(35), `{"name":"f","parameters":{}};`)
	f.Fuzz(func(t *testing.T, flags uint8, text string) {
		families := Families()
		checkAnswer(t, t.Fatalf, Spec{
			Family: families[int(flags>>3)%len(families)], Tools: flags&1 == 0, Thinks: flags&2 > 0, One: flags&4 > 0,
		}, text)
	})
}

// TestLongAnswers: the work is linear in the text, whatever it repeats.
func TestLongAnswers(t *testing.T) {
	const size = 256 << 10
	for _, piece := range []string{
		"<tool_call>", "<", "<tool_call>{", `<tool_call>{"x":"`, `<tool_call>{"name":"f","arguments":{"a":"`, "<function=f>\n<parameter=a>\n{", " ", "\n", "<think>", "[", "{\"a\":",
		"<tool_call>{\"name\":\"f\"}</tool_call>", "<｜tool▁call▁begin｜>", "[TOOL_CALLS]", "[TOOL_CALLS][{", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>", "<arg_key>", "<tool_call>f<arg_key>a</arg_key><arg_value>[", "1", "text ",
	} {
		for _, f := range Families() {
			for _, thinks := range []bool{false, true} {
				if thinks && f != Hermes {
					continue
				}
				start := time.Now()
				p := NewParser(Spec{Family: f, Tools: true, Thinks: thinks}, "job")
				p.Add(strings.Repeat(piece, size/len(piece)))
				p.End()
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("%s %q: %v", f, piece, took)
				}
			}
		}
	}
}

// TestHeld: what is held back is bounded.
func TestHeld(t *testing.T) {
	for _, text := range []string{
		"<tool_call>{\"x\":\"", "<tool_call>{\"name\":\"f\",\"arguments\":\"", " ", "<tool_call>", "<function=f>\n<parameter=a>\n[",
		`<tool_call>{"name":"f","arguments":{}}`, `<tool_call>{"name":"f"}</tool_call>`,
	} {
		for _, think := range []bool{false, true} {
			p := NewParser(Spec{Family: Hermes, Tools: true, Thinks: think}, "job")
			p.Add(text)
			sent := 0
			for range 100 {
				for _, d := range p.Add(strings.Repeat(" ", 8<<10)) {
					sent += len(d.Content) + len(d.Reasoning) + len(d.Arguments)
				}
			}
			if sent < 100*8<<10-2*maxHeld {
				t.Errorf("%q, think %v: only %d of %d bytes came out", text, think, sent, 100*8<<10)
			}
		}
	}
}

// TestScanner compares with encoding/json on random text.
func TestScanner(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"{", "}", "[", "]", ":", ",", `"a"`, `"\u00e9\n\\"`, `"`, `\`, "1", "0", "-", ".5", "e+3", "E", "true", "false", "null", "nul", " ", "\n", "한", "\x01", "tru", `\u12`, "+",
	})
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 1, 9).Draw(rt, "text"), "")
		s, ok := scanner{}, true
		for i := range len(text) {
			if s.whole() && json.Valid([]byte(text[:i])) != s.whole() {
				rt.Fatalf("%q is taken for a value", text[:i])
			}
			if ok = s.next(text[i]); !ok {
				break
			}
		}
		if valid := json.Valid([]byte(text)); valid != (ok && s.whole()) && !(valid && !ok && strings.TrimSpace(text) != text) {
			rt.Fatalf("%q: valid %v, scanner %v %v", text, valid, ok, s.whole())
		}
	})
	deep := scanner{}
	for i := range maxJSONDepth + 1 {
		if ok := deep.next('['); ok != (i < maxJSONDepth) {
			t.Fatalf("depth %d: %v", i+1, ok)
		}
	}
}
