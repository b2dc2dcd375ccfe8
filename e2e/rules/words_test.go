package rules

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// forbidden are words that no file may hold. They are put together here, so that
// this file does not hold them itself.
var forbidden = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(^|[^\w.])/(work|farm)/`), "a path of one machine"},
	{regexp.MustCompile(`(proxy|sum)\.golang` + `\.org|registry\.npmjs` + `\.org|deb\.debian` + `\.org`), "a registry host: tools are configured where they run"},
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`), "unfinished work belongs into an issue"},
}

// repositoryFiles lists what git has or would add; without git, what the walk of
// the source tree finds.
func repositoryFiles(t *testing.T) []string {
	t.Helper()
	dir := root(t)
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = dir
	if b, err := cmd.Output(); err == nil {
		var out []string
		for rel := range strings.Lines(string(b)) {
			rel = strings.TrimSpace(rel)
			if st, err := os.Lstat(filepath.Join(dir, rel)); err == nil && st.Mode().IsRegular() {
				out = append(out, rel)
			}
		}
		return out
	}
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			if err == nil && d.IsDir() && p != dir && d.Name() != "testdata" && d.Name() != ".ci" && skipDir(d.Name()) {
				return filepath.SkipDir
			}
			return err
		}
		rel, err := filepath.Rel(dir, p)
		out = append(out, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wordFaults(name string, text []byte) []string {
	if bytes.IndexByte(text, 0) >= 0 {
		return nil // not text
	}
	var out []string
	for i, line := range bytes.Split(text, []byte("\n")) {
		for _, f := range forbidden {
			if m := f.pattern.Find(line); m != nil {
				out = append(out, fmt.Sprintf("%s:%d: %q: %s", name, i+1, m, f.why))
			}
		}
	}
	return out
}

func TestForbiddenWords(t *testing.T) {
	dir := root(t)
	for _, rel := range repositoryFiles(t) {
		b, err := os.ReadFile(filepath.Join(dir, rel))
		if os.IsNotExist(err) {
			continue // removed since it was listed
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range wordFaults(rel, b) {
			t.Error(f)
		}
	}
}

func TestWordRuleFindsFaults(t *testing.T) {
	for text, want := range map[string]int{
		"plain text":                            0,
		"see https://example.com/a/work/b":      0,
		"homework/x":                            0,
		"cd /wo" + "rk/main":                    1,
		"`/fa" + "rm/x`":                        1,
		"GOPROXY=https://proxy.golang" + ".org": 1,
		"\"https://registry.npmjs" + ".org/x\"": 1,
		"// TO" + "DO: later":                   1,
		"a FIX" + "ME b\nc TO" + "DO":           2,
		"TODOS and mastodon":                    0,
		"binary \x00 TO" + "DO":                 0,
	} {
		if got := wordFaults("x", []byte(text)); len(got) != want {
			t.Errorf("%q: %q, want %d findings", text, got, want)
		}
	}
}
