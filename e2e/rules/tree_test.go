package rules

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// modulePath is the module of the product; e2e is a module below it.
const modulePath = "github.com/weir-dev/weir"

// source is one parsed Go file of the tree, whatever platform it is for.
type source struct {
	path  string // from the root, with slashes
	test  bool
	lines int
	fset  *token.FileSet
	file  *ast.File
}

func (s source) dir() string { return path.Dir(s.path) }

// imports maps the name under which a file knows a package to its path.
func (s source) imports() map[string]string {
	out := map[string]string{}
	for _, spec := range s.file.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(p)
		if name == "v2" || name == "v6" {
			name = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "_" || name == "." {
			name += p // never a selector, but not to be lost
		}
		out[name] = p
	}
	return out
}

// root is the folder with go.work, above the working directory.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.work above the working directory")
		}
		dir = up
	}
}

// skipDir names folders that hold no source of weir: what is built, fetched or
// written by a run, and what is only data.
func skipDir(name string) bool {
	return name == "bin" || name == "node_modules" || name == "testdata" ||
		(strings.HasPrefix(name, ".") && name != ".") || strings.HasPrefix(name, "_")
}

// tree parses all Go files once for all rules.
func tree(t testing.TB) []source {
	t.Helper()
	out, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("only %d Go files found: the walk is broken", len(out))
	}
	return out
}

var load = sync.OnceValues(func() ([]source, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "../..")
	fset := token.NewFileSet()
	var out []source
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != dir && skipDir(d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		s, err := parse(fset, filepath.ToSlash(rel), p, nil)
		if err == nil {
			out = append(out, s)
		}
		return err
	})
	return out, err
})

// parse reads a file, or src where it is not nil.
func parse(fset *token.FileSet, rel, file string, src []byte) (source, error) {
	if src == nil {
		var err error
		if src, err = os.ReadFile(file); err != nil {
			return source{}, err
		}
	}
	f, err := parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	return source{
		path: rel, test: strings.HasSuffix(rel, "_test.go"), lines: bytes.Count(src, []byte("\n")), fset: fset, file: f,
	}, err
}

// fake is a source for negative controls.
func fake(t testing.TB, rel, src string) source {
	t.Helper()
	s, err := parse(token.NewFileSet(), rel, "", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
