package grammar

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestCheckAccepts(t *testing.T) {
	for _, s := range []string{
		`root ::= "a"`,
		"root ::= a | b # comment\n\n# more\na ::= \"x\"\nb ::=\n  \"y\" |\n  \"z\"\n",
		`root ::= [a-zA-Z_] [^\n\]]* "\x41\u00e9\U0001F600\t\"\\"`,
		`root ::= ("a" | ( "b"? "c"+ ){2,3} ){1,} .`,
		"root ::= (\n \"a\"\n | \"b\"\n)\r\n",
		`root ::= "a"{0,1000}`,
		`root ::= `,
		`root ::= "a" |`,
		"root ::= x-1\nx-1 ::= \"a\" root?",
		`root ::= [a-] [-+] "한국어"`,
		"\n# starts with a comment\nroot ::= \"\"",
		"root ::= \"[\" (root (\",\" root)*)? \"]\"",
		`root ::= ("a"?){0,5}`,
	} {
		if err := Check(s); err != nil {
			t.Errorf("%s\n\t%v", s, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"", `no rule "root"`},
		{`a ::= "x"`, `no rule "root"`},
		{`root = "a"`, "expected ::="},
		{`::= "a"`, "expected a rule name"},
		{`root ::= "a`, "string without end"},
		{`root ::= [a`, "class without end"},
		{`root ::= []`, "empty character class"},
		{`root ::= [z-a]`, "reversed"},
		{`root ::= "\q"`, "unknown escape"},
		{`root ::= "\`, "unknown escape"},
		{`root ::= "\u12"`, "hex digits"},
		{`root ::= "\u12xy"`, "no character"},
		{`root ::= "\u1"`, "hex digits"},
		{`root ::= "\UFFFFFFFF"`, "no character"},
		{`root ::= ("a"`, "expected ')'"},
		{`root ::= "a")`, "expected the end of rule"},
		{`root ::= * "a"`, "nothing before"},
		{`root ::= ""*`, "cannot be repeated"},
		{`root ::= "a"{2,1}`, "ends before it starts"},
		{`root ::= "a"{`, "'{' without '}'"},
		{`root ::= "a"{x}`, "no number"},
		{`root ::= "a"{}`, "repetitions, allowed"},
		{`root ::= "a"{1001}`, "allowed are 0 to 1000"},
		{`root ::= "a"{99999999999999999999}`, "allowed are 0 to 1000"},
		{"root ::= a\na ::= b", `line 2: rule "b" is not defined`},
		{"root ::= \"a\"\nroot ::= \"b\"", "defined twice"},
		{`root ::= root "a" | "b"`, "can begin with itself"},
		{"root ::= a\na ::= \"\" b\nb ::= \"x\"? a | \"y\"", "can begin with itself"},
		{`root ::= ("a"*)*`, "can begin with itself"},
		{`root ::= ("a"?)+`, "can begin with itself"},
		{"root ::= a\na ::= \"x\" a", "can never end"},
		{"root ::= " + strings.Repeat("(", 100) + `"a"` + strings.Repeat(")", 100), "nest deeper"},
		{"root ::= " + strings.Repeat(`("a"{1000}){1000} `, 200), "more than 20000 elements"},
		{"root ::= " + strings.Repeat(`"a"{1000} `, 200), "more than 20000 elements"},
		{"root ::= " + strings.Repeat(`"a"? `, 9000), "more than"},
		{"root ::= \"a\"\n" + "xxx ::= " + strings.Repeat("()", 8200), "more than 8192 rules"},
		{"root ::= \"a\xff\"", "UTF-8"},
		{"root ::= \"a\x00\"", "zero byte"},
		{`root ::= "` + strings.Repeat("x", maxSource) + `"`, "bytes, at most"},
		{`root ::= a_b`, "expected the end of rule"},
		{`root ::= <[10]>`, "expected the end of rule"},
	} {
		err := Check(c.source)
		if !errors.Is(err, ErrGrammar) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s\n\terror %v, want it to say %q", c.source, err, c.want)
		}
	}
}

// A long chain of rules must not need a deep stack, nor quadratic time.
func TestCheckLongChain(t *testing.T) {
	var b strings.Builder
	b.WriteString("root ::= r0\n")
	const n = 8_000
	for i := range n {
		fmt.Fprintf(&b, "r%d ::= r%d\n", i, i+1)
	}
	fmt.Fprintf(&b, "r%d ::= \"a\"\n", n)
	start := time.Now()
	if err := Check(b.String()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		`root ::= ("a" | ( "b"? "c"+ ){2,3} ){1,} .`, "root ::= a | b # c\na ::= [^x-z\\n]*\nb ::= \"\\u00e9\" root", JSONObject(),
	} {
		f.Add(s, "text")
	}
	f.Fuzz(func(t *testing.T, source, text string) {
		g, err := Parse(source)
		if err != nil {
			if !errors.Is(err, ErrGrammar) {
				t.Fatalf("error %v does not wrap ErrGrammar", err)
			}
			return
		}
		m := g.Matcher()
		if len(source) < 1000 && len(text) < 100 {
			m.Feed([]byte(text))
			m.Complete()
		}
	})
}
