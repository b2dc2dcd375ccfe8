package chat

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// wholeText is the specification: decode everything, then cut at the stop
// string that ends first.
func wholeText(data []byte, stops []string) string {
	text := string([]rune(string(data)))
	for end := range len(text) + 1 {
		best := -1
		for _, s := range stops {
			if s != "" && strings.HasSuffix(text[:end], s) && (best < 0 || end-len(s) < best) {
				best = end - len(s)
			}
		}
		if best >= 0 {
			return text[:best]
		}
	}
	return text
}

func TestTextDoesNotDependOnCuts(t *testing.T) {
	atoms := []string{"a", "b", "ab", "한", "국어", "😀", "👩‍👩‍👧", "é", "\xff", "\xed\xa0\x80", "\xf0\x9f", "</s>", "<", "\n", "\ufffd"}
	rapid.Check(t, func(t *rapid.T) {
		data := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(atoms), 0, 12).Draw(t, "text"), ""))
		stops := rapid.SliceOfN(rapid.SampledFrom([]string{"ab", "ba", "abab", "</s>", "한", "국어😀", "\n\n", "", "b\n", "\ufffd"}), 0, 4).Draw(t, "stops")
		text, out := NewText(stops), strings.Builder{}
		for rest := data; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 5)).Draw(t, "cut")
			piece := text.Add(rest[:n])
			if !utf8.ValidString(piece) {
				t.Fatalf("piece %q splits a character", piece)
			}
			out.WriteString(piece)
			rest = rest[n:]
		}
		out.WriteString(text.Flush())
		if want := wholeText(data, stops); out.String() != want {
			t.Fatalf("data %q, stops %q: got %q, want %q", data, stops, out.String(), want)
		}
	})
}

func TestTextCases(t *testing.T) {
	for _, c := range []struct {
		name   string
		stops  []string
		pieces []string
		want   []string // what each Add returns, then Flush
		stop   string
		index  int
	}{
		{"korean over tokens", nil, []string{"\xed\x95", "\x9c\xea", "\xb5\xad"}, []string{"", "한", "국", ""}, "", -1},
		{"emoji over four tokens", nil, []string{"\xf0", "\x9f", "\x98", "\x80!"}, []string{"", "", "", "😀!", ""}, "", -1},
		{"truncated at the end", nil, []string{"a\xed\x95"}, []string{"a", "\ufffd\ufffd"}, "", -1},
		{"invalid in between", nil, []string{"a\xff", "b"}, []string{"a\ufffd", "b", ""}, "", -1},
		{"stop over tokens", []string{"STOP"}, []string{"say S", "TO", "P it"}, []string{"say ", "", "", ""}, "STOP", 2},
		{"not the stop after all", []string{"STOP"}, []string{"ST", "OX"}, []string{"", "STOX", ""}, "", -1},
		{"prefix at the end comes out", []string{"STOP"}, []string{"a ST"}, []string{"a ", "ST"}, "", -1},
		{"repeated prefix", []string{"aab"}, []string{"aa", "a", "b"}, []string{"", "a", "", ""}, "aab", 2},
		{"first to end counts", []string{"abcd", "bc"}, []string{"abcd"}, []string{"a", ""}, "bc", 0},
		{"longer of two that end together", []string{"c", "bc"}, []string{"ab", "c"}, []string{"a", "", ""}, "bc", 1},
		{"korean stop over tokens", []string{"끝"}, []string{"네 \xeb", "\x81\x9d", "x"}, []string{"네 ", "", "", ""}, "끝", 1},
		{"nothing after a stop", []string{"."}, []string{"a.", "b."}, []string{"a", "", ""}, ".", 0},
		{"empty pieces", []string{"x"}, []string{"", "a", ""}, []string{"", "a", "", ""}, "", -1},
	} {
		text := NewText(c.stops)
		for i, want := range c.want {
			var got string
			if i < len(c.pieces) {
				got = text.Add([]byte(c.pieces[i]))
			} else {
				got = text.Flush()
			}
			if got != want {
				t.Errorf("%s: step %d returned %q, want %q", c.name, i, got, want)
			}
		}
		if stop, index := text.Stopped(); stop != c.stop || index != c.index {
			t.Errorf("%s: stopped by %q at %d, want %q at %d", c.name, stop, index, c.stop, c.index)
		}
		if text.Pending() || text.Flush() != "" {
			t.Errorf("%s: something is left", c.name)
		}
	}
}

func TestTextPending(t *testing.T) {
	text := NewText([]string{"STOP"})
	text.Add([]byte("a"))
	if text.Pending() {
		t.Error("pending after plain text")
	}
	text.Add([]byte("ST"))
	if !text.Pending() || text.Tokens() != 2 {
		t.Errorf("pending %v, tokens %d", text.Pending(), text.Tokens())
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("한국어 </s>"), "</s>", "국", uint8(2))
	f.Add([]byte("\xf0\x9f\x98"), "a", "", uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, a, b string, cut uint8) {
		stops := []string{strings.ToValidUTF8(a, ""), strings.ToValidUTF8(b, "")}
		text, out, n := NewText(stops), "", int(cut%7)+1
		for i := 0; i < len(data); i += n {
			out += text.Add(data[i:min(i+n, len(data))])
		}
		out += text.Flush()
		if want := wholeText(data, stops); out != want {
			t.Fatalf("got %q, want %q", out, want)
		}
	})
}

func BenchmarkText(b *testing.B) {
	text := NewText([]string{"</s>", "\n\nUser:"})
	piece := []byte(" 토큰")
	b.ReportAllocs()
	for b.Loop() {
		text.Add(piece)
	}
}
