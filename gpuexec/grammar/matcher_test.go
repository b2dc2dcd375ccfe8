package grammar

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func match(t testing.TB, source, text string) bool {
	t.Helper()
	g, err := Parse(source)
	if err != nil {
		t.Fatalf("%s\n%v", source, err)
	}
	return g.Match(text)
}

func TestMatcher(t *testing.T) {
	for _, c := range []struct {
		source  string
		yes, no []string
	}{
		{`root ::= "ab" | "ac"`, []string{"ab", "ac"}, []string{"", "a", "ad", "abc"}},
		{`root ::= [a-c]{2,3}`, []string{"ab", "abc"}, []string{"a", "abca", "ad"}},
		{`root ::= "a"? "b"* "c"+`, []string{"c", "abbc", "ccc"}, []string{"", "ab", "aac"}},
		{`root ::= "a"{2,}`, []string{"aa", "aaaaa"}, []string{"a", ""}},
		{`root ::= "a"{0}`, []string{""}, []string{"a"}},
		{`root ::= [^0-9] .`, []string{"aé", "한국"}, []string{"1a", "a"}},
		{"root ::= \"(\" root \")\" | \"\"", []string{"", "(())"}, []string{"(", "())"}},
		{"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"", []string{"1+2", "(1+23)+4"}, []string{"1+", "(1", "+1"}},
		{`root ::= "\x41\u00e9\U0001F600"`, []string{"Aé😀"}, []string{"Ae"}},
		{"root ::= a b\na ::= \"x\" | \"\"\nb ::= | \"y\"", []string{"", "x", "y", "xy"}, []string{"yx"}},
	} {
		for _, s := range c.yes {
			if !match(t, c.source, s) {
				t.Errorf("%s refuses %q", c.source, s)
			}
		}
		for _, s := range c.no {
			if match(t, c.source, s) {
				t.Errorf("%s accepts %q", c.source, s)
			}
		}
	}
}

func TestMatcherByBytes(t *testing.T) {
	g, err := Parse(`root ::= "한"+ "!"`)
	if err != nil {
		t.Fatal(err)
	}
	m := g.Matcher()
	for _, b := range []byte("한한!") {
		if m.Complete() {
			t.Fatal("complete too early")
		}
		if !m.Feed([]byte{b}) {
			t.Fatal("refused")
		}
	}
	if !m.Complete() {
		t.Error("not complete")
	}
	if m.Feed([]byte("!")) || m.Feed(nil) || m.Complete() {
		t.Error("a dead matcher came back")
	}
	if g.Match("\xff") || g.Match("한\xed\x95") {
		t.Error("accepts what is not UTF-8")
	}
}

// Random grammars without recursion are regular expressions: Go's must agree.
func TestMatcherAgainstRegexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gbnf, expr := pattern(t, 3)
		re, err := regexp.Compile("^(?:" + expr + ")$")
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		g, err := Parse("root ::= " + gbnf)
		if err != nil { // a repetition of what may be empty
			t.Skip(err)
		}
		for range 5 {
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "é"}), 0, 6).Draw(t, "text"), "")
			if got, want := g.Match(text), re.MatchString(text); got != want {
				t.Fatalf("%s on %q: %v, regexp %s says %v", gbnf, text, got, expr, want)
			}
		}
	})
}

// pattern draws the same language in both notations.
func pattern(t *rapid.T, depth int) (gbnf, expr string) {
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth == 0 {
		kind %= 3
	}
	switch kind {
	case 0:
		c := rapid.SampledFrom([]string{"a", "b", "é"}).Draw(t, "char")
		return `"` + c + `"`, c
	case 1:
		c := rapid.SampledFrom([]string{"[ab]", "[^a]", "[a-c]"}).Draw(t, "class")
		return c, c
	case 2:
		return `("ab")`, "(?:ab)"
	case 3:
		g1, e1 := pattern(t, depth-1)
		g2, e2 := pattern(t, depth-1)
		return "(" + g1 + " | " + g2 + ")", "(?:" + e1 + "|" + e2 + ")"
	case 4:
		g1, e1 := pattern(t, depth-1)
		g2, e2 := pattern(t, depth-1)
		return g1 + " " + g2, e1 + e2
	default:
		g, e := pattern(t, depth-1)
		sign := rapid.SampledFrom([]string{"*", "+", "?", "{2}", "{1,3}", "{2,}"}).Draw(t, "sign")
		return "(" + g + ")" + sign, "(?:" + e + ")" + sign
	}
}

func BenchmarkMatcherJSON(b *testing.B) {
	g, err := Parse(JSONObject())
	if err != nil {
		b.Fatal(err)
	}
	text := []byte(`{"a": [1, 2.5, {"b": "c\n"}], "d": true}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if m := g.Matcher(); !m.Feed(text) || !m.Complete() {
			b.Fatal("refused")
		}
	}
}
