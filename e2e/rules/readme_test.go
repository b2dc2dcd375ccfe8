package rules

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// readme returns the README, or skips: the rules about it hold once it is there.
func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if os.IsNotExist(err) {
		t.Skip("there is no README.md yet")
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// commandLines returns the lines of all fenced code blocks, without prompts,
// comments and continuations joined.
func commandLines(markdown string) []string {
	var out []string
	inside, open := false, ""
	for line := range strings.Lines(markdown) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inside, open = !inside, ""
			continue
		}
		if !inside {
			continue
		}
		line = open + strings.TrimPrefix(line, "$ ")
		if cut, ok := strings.CutSuffix(line, "\\"); ok {
			open = cut
			continue
		}
		open = ""
		if line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

var (
	separators = regexp.MustCompile(`&&|\|\||[;|&]`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	word       = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

// commandFaults says which make targets and weir sub-commands of a Markdown text
// do not exist.
func commandFaults(markdown string, targets, verbs map[string]bool) []string {
	var out []string
	for _, line := range commandLines(markdown) {
		for _, cmd := range separators.Split(line, -1) {
			f := strings.Fields(cmd)
			for len(f) > 0 && (assignment.MatchString(f[0]) || f[0] == "sudo" || f[0] == "time") {
				f = f[1:]
			}
			if len(f) < 2 {
				continue
			}
			switch f[0] {
			case "make":
				for _, a := range f[1:] {
					if word.MatchString(a) && !targets[a] {
						out = append(out, fmt.Sprintf("%q: the Makefile has no target %s", line, a))
					}
				}
			case "weir", "bin/weir", "./bin/weir":
				if word.MatchString(f[1]) && !verbs[f[1]] {
					out = append(out, fmt.Sprintf("%q: weir has no sub-command %s", line, f[1]))
				}
			}
		}
	}
	return out
}

var targetLine = regexp.MustCompile(`(?m)^([a-zA-Z0-9_. -]+):([^=]|$)`)

func makeTargets(makefile string) map[string]bool {
	out := map[string]bool{}
	for _, m := range targetLine.FindAllStringSubmatch(makefile, -1) {
		for _, name := range strings.Fields(m[1]) {
			if !strings.HasPrefix(name, ".") {
				out[name] = true
			}
		}
	}
	return out
}

// subCommands are the first words of all Use: fields under services.
func subCommands(files []source) map[string]bool {
	out := map[string]bool{"help": true, "completion": true} // cobra brings these
	for _, s := range files {
		if s.test || !within(s.dir(), "services") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			kv, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			key, _ := kv.Key.(*ast.Ident)
			lit, _ := kv.Value.(*ast.BasicLit)
			if key == nil || key.Name != "Use" || lit == nil {
				return true
			}
			if text, err := strconv.Unquote(lit.Value); err == nil && text != "" {
				out[strings.Fields(text)[0]] = true
			}
			return true
		})
	}
	return out
}

func makefile(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReadmeCommandsExist(t *testing.T) {
	for _, f := range commandFaults(readme(t), makeTargets(makefile(t)), subCommands(tree(t))) {
		t.Error(f)
	}
}

func TestCommandRuleFindsFaults(t *testing.T) {
	targets := makeTargets("GO ?= go\nX := 1\nbuild: deps ## builds\n\tgo build\ntest race:\n.PHONY: ghost\n")
	if len(targets) != 3 || !targets["build"] || !targets["test"] || !targets["race"] {
		t.Errorf("targets: %v", targets)
	}
	verbs := subCommands([]source{fake(t, "services/weir/a.go", "package main\n\nvar c = &cobra.Command{Use: \"turn TEXT\", Short: \"x\"}\n")})
	if !verbs["turn"] || verbs["roles"] {
		t.Errorf("sub-commands: %v", verbs)
	}
	tests := []struct {
		block string
		want  int
	}{
		{"make build && make test", 0},
		{"$ make build test V=1", 0},
		{"make nothing", 1},
		{"CI=true make nothing", 1},
		{"make build; make \\\n  nothing", 1},
		{"# make nothing", 0},
		{"weir turn \"hello\" -o json | jq .", 0},
		{"bin/weir --help", 0},
		{"./bin/weir rolls set", 1},
		{"weir turn x & weir rolls", 1},
		{"nats req weir.turn '{}'", 0},
	}
	for _, tt := range tests {
		got := commandFaults("text: make nothing\n```sh\n"+tt.block+"\n```\nmake nothing\n", targets, verbs)
		if len(got) != tt.want {
			t.Errorf("%q: %q, want %d findings", tt.block, got, tt.want)
		}
	}
}

var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z][A-Za-z0-9_]*`)

// tableFaults checks the tables whose first column is headed "feature": every
// other cell must name a test, and the test must exist.
func tableFaults(markdown string, tests map[string]bool) (tables int, out []string) {
	inside := false
	for line := range strings.Lines(markdown) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		first := strings.ToLower(strings.TrimSpace(cells[0]))
		switch {
		case first == "feature":
			inside, tables = true, tables+1
		case inside && strings.Trim(first, ":- ") == "":
		case inside:
			for _, c := range cells[1:] {
				names := testName.FindAllString(c, -1)
				if len(names) == 0 {
					out = append(out, fmt.Sprintf("%s: the cell %q names no test", first, strings.TrimSpace(c)))
				}
				for _, n := range names {
					if !tests[n] {
						out = append(out, fmt.Sprintf("%s: there is no func %s", first, n))
					}
				}
			}
		}
	}
	return tables, out
}

// testFuncs are the names of all tests of the tree.
func testFuncs(files []source) map[string]bool {
	out := map[string]bool{}
	for _, s := range files {
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && s.test && fn.Recv == nil && testName.MatchString(fn.Name.Name) {
				out[fn.Name.Name] = true
			}
		}
	}
	return out
}

func TestReadmeTableNamesTests(t *testing.T) {
	tables, faults := tableFaults(readme(t), testFuncs(tree(t)))
	if tables == 0 {
		t.Error("README.md has no table headed \"Feature\"")
	}
	for _, f := range faults {
		t.Error(f)
	}
}

func TestTableRuleFindsFaults(t *testing.T) {
	const head = "| Feature | go | llama |\n|---|:--:|---|\n"
	have := map[string]bool{"TestA": true, "FuzzB": true}
	tests := map[string]struct {
		text   string
		tables int
		want   int
	}{
		"no table":      {"text", 0, 0},
		"other table":   {"| Word | meaning |\n|---|---|\n| x | y |\n", 0, 0},
		"good":          {head + "| stream | `TestA` | refused: [FuzzB](e2e/x_test.go) |\n", 1, 0},
		"missing test":  {head + "| stream | `TestA` | `TestGone` |\n", 1, 1},
		"empty cell":    {head + "| stream | `TestA` | |\n", 1, 1},
		"yes is no cue": {head + "| stream | yes | TestA |\n", 1, 1},
	}
	for name, tt := range tests {
		tables, faults := tableFaults(tt.text, have)
		if tables != tt.tables || len(faults) != tt.want {
			t.Errorf("%s: %d tables, %q", name, tables, faults)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)\s#]+)(?:#[^)]*)?\)`)

// TestLinksExist follows the relative links of all Markdown files.
func TestLinksExist(t *testing.T) {
	dir := root(t)
	for _, rel := range repositoryFiles(t) {
		if !strings.HasSuffix(rel, ".md") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, filepath.Dir(rel), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", rel, m[1])
			}
		}
	}
}

// TestMakeHelpIsComplete: every target says what it does, so that `make help` is
// the list of commands.
func TestMakeHelpIsComplete(t *testing.T) {
	text := makefile(t)
	documented := regexp.MustCompile(`(?m)^([a-z0-9-]+):.*?## \S`)
	var have []string
	for _, m := range documented.FindAllStringSubmatch(text, -1) {
		have = append(have, m[1])
	}
	for name := range makeTargets(text) {
		if word.MatchString(name) && !slices.Contains(have, name) {
			t.Errorf("target %s has no ## text", name)
		}
	}
}

// TestContinuousIntegrationRunsTheReadme: the machine that judges a change does
// what the README tells a reader to do.
func TestContinuousIntegrationRunsTheReadme(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root(t), ".ci/run"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^[^#\n]*\bmake test\b`).Match(b) {
		t.Error(".ci/run does not call `make test`")
	}
	if !strings.Contains(readme(t), "make test") {
		t.Error("README.md does not name `make test`")
	}
}
