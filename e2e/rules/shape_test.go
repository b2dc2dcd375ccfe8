package rules

import (
	"fmt"
	"go/ast"
	"path"
	"strings"
	"testing"
)

// Budgets in lines, for files that are not tests.
const (
	maxFile = 500
	maxFunc = 70
)

// overBudget are files ("dir/file.go") and functions ("dir/file.go:Name") that may
// be longer, each with the reason why cutting them would make them worse to read.
var overBudget = map[string]string{}

// vague are package names that say nothing about what is inside.
var vague = map[string]bool{"util": true, "utils": true, "common": true, "helper": true, "helpers": true, "misc": true, "base": true}

func shapeFaults(s source) []string {
	var out []string
	if s.lines > maxFile && !s.test && overBudget[s.path] == "" {
		out = append(out, fmt.Sprintf("%s has %d lines, at most %d; one noun per file", s.path, s.lines, maxFile))
	}
	if vague[s.file.Name.Name] || vague[path.Base(s.dir())] {
		out = append(out, fmt.Sprintf("%s: package name %q says nothing", s.path, s.file.Name.Name))
	}
	for _, d := range s.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		at := s.fset.Position(fn.Pos())
		n := s.fset.Position(fn.End()).Line - at.Line + 1
		if n > maxFunc && !s.test && overBudget[s.path+":"+fn.Name.Name] == "" {
			out = append(out, fmt.Sprintf("%s: %s has %d lines, at most %d", at, fn.Name.Name, n, maxFunc))
		}
		if fn.Recv == nil && fn.Name.Name == "init" {
			out = append(out, fmt.Sprintf("%s: init hides work from the reader of main", at))
		}
	}
	return out
}

func TestShape(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range tree(t) {
		for _, f := range shapeFaults(s) {
			t.Error(f)
		}
		seen[s.path] = true
	}
	for what, why := range overBudget {
		file, _, _ := strings.Cut(what, ":")
		if !seen[file] || why == "" {
			t.Errorf("overBudget: %s does not exist or has no reason", what)
		}
	}
}

func TestShapeRuleFindsFaults(t *testing.T) {
	tests := map[string]struct {
		file, src string
		want      int
	}{
		"clean":         {"kvtier/a.go", "package kvtier\n\nfunc f() {}\n", 0},
		"long file":     {"kvtier/a.go", "package kvtier\n" + strings.Repeat("// line\n", maxFile), 1},
		"longest file":  {"kvtier/a.go", "package kvtier\n" + strings.Repeat("// line\n", maxFile-1), 0},
		"long test":     {"kvtier/a_test.go", "package kvtier\n" + strings.Repeat("// line\n", maxFile), 0},
		"long func":     {"kvtier/a.go", "package kvtier\nfunc f() {\n" + strings.Repeat("f()\n", maxFunc-1) + "}\n", 1},
		"longest func":  {"kvtier/a.go", "package kvtier\nfunc f() {\n" + strings.Repeat("f()\n", maxFunc-2) + "}\n", 0},
		"init":          {"kvtier/a.go", "package kvtier\nfunc init() {}\n", 1},
		"init method":   {"kvtier/a.go", "package kvtier\ntype t int\nfunc (t) init() {}\n", 0},
		"vague package": {"kvtier/util/a.go", "package util\n", 1},
	}
	for name, tt := range tests {
		if got := shapeFaults(fake(t, tt.file, tt.src)); len(got) != tt.want {
			t.Errorf("%s: %q, want %d findings", name, got, tt.want)
		}
	}
}

// undocumented lists packages without a package comment.
func undocumented(files []source) []string {
	doc := map[string]bool{}
	for _, s := range files {
		if strings.HasSuffix(s.file.Name.Name, "_test") {
			continue // an external test package is documented by the package it tests
		}
		doc[s.dir()] = doc[s.dir()] || (!s.test && s.file.Doc != nil && len(strings.Fields(s.file.Doc.Text())) >= 8)
	}
	var out []string
	for dir, ok := range doc {
		if !ok {
			out = append(out, dir)
		}
	}
	return out
}

func TestPackageComments(t *testing.T) {
	for _, dir := range undocumented(tree(t)) {
		t.Errorf("%s has no package comment that says what it is for and what to read first", dir)
	}
}

func TestPackageCommentRuleFindsFaults(t *testing.T) {
	good := fake(t, "kvtier/doc.go", "// Package kvtier decides which blocks stay in memory, and why.\npackage kvtier\n")
	bare := fake(t, "kvtier/a.go", "package kvtier\n")
	short := fake(t, "planner/a.go", "// Package planner plans.\npackage planner\n")
	detached := fake(t, "streams/a.go", "// Package streams says how messages move between all the parts.\n\npackage streams\n")
	if got := undocumented([]source{good, bare}); len(got) != 0 {
		t.Errorf("one comment per package is enough: %q", got)
	}
	if got := undocumented([]source{short, detached}); len(got) != 2 {
		t.Errorf("found %q", got)
	}
}
