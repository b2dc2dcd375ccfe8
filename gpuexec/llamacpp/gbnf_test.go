package llamacpp

import (
	"errors"
	"strings"
	"testing"
)

// goodGrammars and badGrammars are also given to the library in
// constraint_test.go where that is safe.
var goodGrammars = []string{
	`root ::= "yes" | "no"`,
	"root ::= [a-z]+ # comment\n",
	"root ::= item (\",\" item)*\nitem ::= [0-9]{1,3}",
	"root ::= (\n  \"a\"\n  | \"b\"\n){2,}",
	`root ::= "\x41\u00e9\U0001F600\n\t\r\\\"\[\]"`,
	`root ::= [^"\\\x00-\x1f]*`,
	`root ::= .{3}`,
	"root ::= x y\nx ::= \"a\"?\ny ::= x \"b\" y | \"c\"",
	"root ::= \"a\" root | \"\"",
	"root ::= [-a] [a-] [0-9-]",
	"a-1 ::= \"x\"\r\nroot ::= a-1",
	"root ::= |\"a\"",
}

var badGrammars = []string{
	``,
	`root`,
	`root ::=` + "\n" + `= "a"`,
	`root := "a"`,
	`other ::= "a"`,
	`root ::= missing`,
	`root ::= "open`,
	`root ::= [a-z`,
	`root ::= []`,
	`root ::= [^]`,
	`root ::= [z-a]`,
	`root ::= ("a"`,
	`root ::= "a")`,
	`root ::= * "a"`,
	`root ::= "a"{`,
	`root ::= "a"{3,2}`,
	`root ::= "a"{0}`,
	`root ::= "a"{999999999999999999999}`,
	`root ::= "a"{x}`,
	`root ::= "\q"`,
	`root ::= "\`,
	`root ::= "\x4"`,
	`root ::= "\U00110000"`,
	`root ::= "\u0000"`,
	`root ::= <think>`,
	`root ::= a_b`,
	"root ::= \"a\"\nroot ::= \"b\"",
	"root ::= \"\xff\"",
	"root ::= \"a\x00b\"",
	"root ::= root \"a\" | \"b\"",
	"root ::= a\na ::= b\nb ::= a \"x\"",
	// Empty only through another rule: the library's own check overlooks these and
	// it loops without end.
	"root ::= a root \"y\" | \"x\"\na ::= b\nb ::= \"\" | \"z\"",
	`root ::= ("a"?)*`,
	`root ::= ("a"* "b"*)+`,
	`root ::= ""*`,
	"root ::= " + strings.Repeat("(", 100_000),
	"root ::= " + strings.Repeat("(", 65) + `"a"` + strings.Repeat(")", 65),
	"root ::= " + strings.Repeat(`"a" | `, 50_000) + `"b"`,
	strings.Repeat("#", maxGrammarBytes+1),
}

func TestCheckGBNF(t *testing.T) {
	for _, g := range goodGrammars {
		if err := checkGBNF(g); err != nil {
			t.Errorf("%q: %v", g, err)
		}
	}
	for _, g := range badGrammars {
		err := checkGBNF(g)
		if !errors.Is(err, ErrGrammar) {
			t.Errorf("%.80q: error %v, want ErrGrammar", g, err)
		} else if len(g) < 60 {
			t.Logf("%q: %v", g, err)
		}
	}
}

func FuzzCheckGBNF(f *testing.F) {
	for _, g := range append(goodGrammars, badGrammars...) {
		if len(g) < 1000 {
			f.Add(g)
		}
	}
	f.Fuzz(func(t *testing.T, g string) {
		if err := checkGBNF(g); err != nil && !errors.Is(err, ErrGrammar) {
			t.Errorf("error without its kind: %v", err)
		}
	})
}
