package llamacpp

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
)

// tinyEngine opens the tiny preset for tests inside the package.
func tinyEngine(t testing.TB) *Engine {
	t.Helper()
	dir := os.Getenv("WEIR_LLAMA_LIB")
	if dir == "" {
		dir = DefaultDir(filepath.Join("..", ".."))
		if _, err := os.Stat(dir); err != nil {
			t.Skipf("no llama.cpp libraries: WEIR_LLAMA_LIB is not set and there is no %s", dir)
		}
	}
	l, err := Load(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(gguf.WritePreset(f, "tiny"), f.Close()); err != nil {
		t.Fatal(err)
	}
	e, err := Open(l, path, Options{Slots: 4, Context: 1024})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// generate samples greedily from made-up logits under a constraint until the end
// of generation or n tokens.
func generate(t *testing.T, e *Engine, c gpuexec.Constraint, n int) string {
	t.Helper()
	v := e.Vocab()
	var text strings.Builder
	for step := range n {
		logits := make([]float32, e.limits.Vocab)
		for i := range logits {
			logits[i] = float32(math.Sin(float64(i*7919 + step*104729)))
		}
		c.Mask(logits)
		best := -1
		for i, l := range logits {
			if !math.IsInf(float64(l), -1) && (best < 0 || l > logits[best]) {
				best = i
			}
		}
		if best < 0 {
			t.Fatalf("after %q nothing is allowed", text.String())
		}
		if err := c.Accept(int32(best)); err != nil {
			t.Fatalf("token %d was left by the mask: %v", best, err)
		}
		if v.EOG(int32(best)) {
			break
		}
		text.Write(v.Piece(int32(best), false))
	}
	return text.String()
}

func TestConstraint(t *testing.T) {
	e := tinyEngine(t)
	for gbnf, ok := range map[string]func(string) bool{
		`root ::= "yes" | "no"`:              func(s string) bool { return s == "yes" || s == "no" },
		`root ::= "{\"n\": " [0-9]{3} "}"`:   func(s string) bool { return len(s) == 10 && strings.HasPrefix(s, `{"n": `) },
		"root ::= x{2}\nx ::= \"é\" | \"猫\"": func(s string) bool { return len([]rune(s)) == 2 },
	} {
		c, err := e.Constrain(gbnf)
		if err != nil {
			t.Fatal(err)
		}
		if got := generate(t, e, c, 40); !ok(got) {
			t.Errorf("%s: generated %q", gbnf, got)
		}
		c.Close()
	}
}

// TestConstraintRefuses: the library throws on each of these tokens, which would
// end the process.
func TestConstraintRefuses(t *testing.T) {
	e := tinyEngine(t)
	c, err := e.Constrain(`root ::= "ab"`)
	if err != nil {
		t.Fatal(err)
	}
	token := func(s string) int32 {
		ids, err := e.Vocab().Tokenize(s, false, false)
		if err != nil || len(ids) != 1 {
			t.Fatalf("%q is %v, %v", s, ids, err)
		}
		return ids[0]
	}
	eos := int32(-1)
	for i := range int32(e.limits.Vocab) {
		if e.Vocab().EOG(i) {
			eos = i
		}
	}
	for _, tok := range []int32{-1, int32(e.limits.Vocab), 0, 1, eos, token("b"), 3 + 0xff} {
		if err := c.Accept(tok); !errors.Is(err, ErrGrammar) {
			t.Errorf("token %d: %v", tok, err)
		}
	}
	for _, tok := range []int32{token("a"), token("b"), eos, eos} {
		if err := c.Accept(tok); err != nil {
			t.Errorf("token %d after refused ones: %v", tok, err)
		}
	}
	if err := c.Accept(token("a")); !errors.Is(err, ErrGrammar) {
		t.Errorf("a token after the end: %v", err)
	}
	c.Close()
	c.Close()
	c.Mask(make([]float32, e.limits.Vocab))
	if err := c.Accept(eos); !errors.Is(err, ErrGrammar) {
		t.Errorf("a closed constraint: %v", err)
	}
}

// TestAmbiguousGrammar: the library's parse stacks double with each character. The
// constraint ends with an error instead of holding the engine for ever.
func TestAmbiguousGrammar(t *testing.T) {
	e := tinyEngine(t)
	c, err := e.Constrain("root ::= \"a\" p \"a\"* | \"b\"\np ::= root \"aa\" | root\n")
	if err != nil {
		t.Fatal(err)
	}
	// Left open: closing the engine frees it.
	ids, err := e.Vocab().Tokenize("a", false, false)
	if err != nil || len(ids) != 1 {
		t.Fatalf("%v, %v", ids, err)
	}
	for step := range 40 {
		if err := c.Accept(ids[0]); err != nil {
			t.Logf("step %d: %v", step, err)
			logits := make([]float32, e.limits.Vocab)
			c.Mask(logits)
			if !errors.Is(err, ErrGrammar) || !math.IsInf(float64(logits[ids[0]]), -1) {
				t.Errorf("error %v, logit %v", err, logits[ids[0]])
			}
			return
		}
	}
	t.Error("40 characters were accepted")
}

// goodGrammars must compile, badGrammars must be refused without an abort, an
// overflow of the C stack or an endless loop.
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
	`root ::= "a"{0} "b"`,
	`root ::= "\u0000" | "b"`,
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
	`root ::= "a"{999999999999999999999}`,
	`root ::= "a"{x}`,
	`root ::= "\q"`,
	`root ::= "\`,
	`root ::= "\x4"`,
	`root ::= "\U00110000"`,
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
	`root ::= ((("abcdefgh"{1000}){1000}){1000}){1000}`, // the library's bound is tighter
	strings.Repeat("#", 256<<10+1),
}

// TestGrammarsAgree gives the library every grammar that grammar.Check accepts.
func TestGrammarsAgree(t *testing.T) {
	e := tinyEngine(t)
	for _, g := range goodGrammars {
		c, err := e.Constrain(g)
		if err != nil {
			t.Errorf("%q: the check accepts it, the library does not: %v", g, err)
			continue
		}
		c.Mask(make([]float32, e.limits.Vocab))
		c.Close()
	}
	for _, g := range badGrammars {
		if c, err := e.Constrain(g); !errors.Is(err, ErrGrammar) {
			t.Errorf("%.60q: %v", g, err)
			if err == nil {
				c.Close()
			}
		}
	}
}
