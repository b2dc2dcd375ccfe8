package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	replaceLine = regexp.MustCompile(`^(?:replace\s+)?(\S+)(?:\s+\S+)?\s+=>\s+(\S+)`)
	goLine      = regexp.MustCompile(`(?m)^go (\S+)$`)
)

// moduleFaults: a replace may point at a sibling of this repository, nothing else,
// because a replaced dependency is one that nobody can look up.
func moduleFaults(name, gomod string) []string {
	var out []string
	for line := range strings.Lines(gomod) {
		m := replaceLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		if !within(m[1], modulePath) || !strings.HasPrefix(m[2], "../") {
			out = append(out, fmt.Sprintf("%s replaces %s by %s; only siblings may be replaced", name, m[1], m[2]))
		}
	}
	if m := goLine.FindStringSubmatch(gomod); m == nil || m[1] != "1.26.0" {
		out = append(out, fmt.Sprintf("%s must say `go 1.26.0`, as all of them do", name))
	}
	return out
}

func TestModules(t *testing.T) {
	for _, name := range []string{"go.mod", "e2e/go.mod", "go.work"} {
		b, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range moduleFaults(name, string(b)) {
			t.Error(f)
		}
	}
}

func TestModuleRuleFindsFaults(t *testing.T) {
	const head = "module x\n\ngo 1.26.0\n\n"
	for text, want := range map[string]int{
		head: 0,
		head + "replace " + modulePath + " => ../\n":                  0,
		head + "replace github.com/a/b => ../b\n":                     1,
		head + "replace github.com/a/b v1.0.0 => other.org/b v1.0\n":  1,
		head + "replace (\n\tgithub.com/a/b => other.org/b v1.0\n)\n": 1,
		head + "replace " + modulePath + " => other.org/weir v1\n":    1,
		"module x\n\ngo 1.25\n":                                       1,
		"module x\n":                                                  1,
	} {
		if got := moduleFaults("go.mod", text); len(got) != want {
			t.Errorf("%q: %q, want %d findings", text, got, want)
		}
	}
}

// TestEverySchemaHasGolden looks from the files, as a reader of the folder would.
func TestEverySchemaHasGolden(t *testing.T) {
	dir := filepath.Join(root(t), "schemas")
	files, err := filepath.Glob(filepath.Join(dir, "jsonschema/*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no schemas found (%v)", err)
	}
	for _, f := range files {
		if _, err := os.Stat(filepath.Join(dir, "testdata", filepath.Base(f))); err != nil {
			t.Errorf("schema %s has no golden: %v", filepath.Base(f), err)
		}
	}
}
