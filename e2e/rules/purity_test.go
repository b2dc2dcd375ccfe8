package rules

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// adapters are the packages under the middle folders that may touch the world,
// each with what it is there for. Everything else under them decides: it is told
// the time, draws from a source it was given, and asks for effects by messages.
var adapters = map[string]string{
	"streams/jsrun":    "speaks JetStream on the wall clock",
	"kvtier/disk":      "writes and reads files",
	"kvtier/hostmem":   "maps shared memory and locks files",
	"kvtier/peer":      "moves blocks over TCP",
	"gpuexec/llamacpp": "loads shared libraries and calls them",
	"gpuexec/nvml":     "loads NVIDIA's library and calls it",
}

// testSupport are packages that exist to be called by tests.
var testSupport = map[string]string{
	"streams/conform": "the suite that both runners pass",
}

// impure are packages that a pure package does not import; the name covers all
// that lies below it.
var impure = map[string]string{
	"os":                    "does I/O; services read files and pass bytes or readers",
	"net":                   "does I/O",
	"syscall":               "does I/O",
	"io/ioutil":             "does I/O",
	"plugin":                "does I/O",
	"flag":                  "configuration is a struct that services fill",
	"log":                   "return errors and counters; services write logs",
	"sync":                  "an actor is called from one goroutine and needs no lock",
	"math/rand":             "global randomness; take a seeded math/rand/v2 source",
	"crypto/rand":           "global randomness; take a seeded math/rand/v2 source",
	"runtime":               "depends on the process it runs in",
	"testing":               "belongs in tests",
	"golang.org/x/sys":      "does I/O",
	"github.com/nats-io":    "only streams/jsrun and services speak NATS",
	"go.opentelemetry.io":   "spans are made in streams/jsrun and services",
	"github.com/prometheus": "metrics are served by services",
	"github.com/spf13":      "the command line is in services",
}

// pureBelow are exceptions to impure.
var pureBelow = map[string]string{
	"math/rand/v2":         "its functions are checked one by one",
	"golang.org/x/sys/cpu": "constants of the machine",
	"runtime":              "GOOS and GOARCH are constants; its functions are checked one by one",
}

// impureNames are functions that a pure package does not call.
var impureNames = map[string][]string{
	"time":          {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"context":       {"Background", "TO" + "DO", "WithTimeout", "WithDeadline", "AfterFunc"},
	"fmt":           {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	"path/filepath": {"Abs", "EvalSymlinks", "Glob", "Walk", "WalkDir"},
}

// onlyNames are packages of which a pure package uses these names and no others.
var onlyNames = map[string][]string{
	"math/rand/v2": {"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Zipf", "Source"},
	"runtime":      {"GOOS", "GOARCH", "KeepAlive"},
}

func isPure(dir string) bool {
	first, _, _ := strings.Cut(dir, "/")
	_, adapter := adapters[dir]
	return middle[first] && !adapter
}

func within(p, parent string) bool { return p == parent || strings.HasPrefix(p, parent+"/") }

func impureImport(dir, imp string) string {
	if _, ok := pureBelow[imp]; ok {
		return ""
	}
	if _, ok := testSupport[dir]; ok && imp == "testing" {
		return ""
	}
	for p, why := range impure {
		if within(imp, p) {
			return why
		}
	}
	return ""
}

// impurities lists what a file of a pure package does that it must not.
func impurities(s source) []string {
	var out []string
	report := func(n ast.Node, format string, args ...any) {
		out = append(out, fmt.Sprintf("%s: %s", s.fset.Position(n.Pos()), fmt.Sprintf(format, args...)))
	}
	names := s.imports()
	for name, imp := range names {
		if why := impureImport(s.dir(), imp); why != "" {
			report(s.file.Name, "imports %s: %s", imp, why)
		}
		if strings.HasPrefix(name, ".") {
			report(s.file.Name, "imports %s into its own names, which hides what is called", imp)
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "starts a goroutine; only runners and services do")
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
				report(n, "prints")
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			imp := names[x.Name]
			if slices.Contains(impureNames[imp], n.Sel.Name) {
				report(n, "uses %s.%s; the time, the context and the output come from the caller", imp, n.Sel.Name)
			}
			if only, ok := onlyNames[imp]; ok && !slices.Contains(only, n.Sel.Name) {
				report(n, "uses %s.%s; allowed are %s", imp, n.Sel.Name, strings.Join(only, ", "))
			}
		}
		return true
	})
	return out
}

func TestPurity(t *testing.T) {
	for _, s := range tree(t) {
		if s.test || !isPure(s.dir()) {
			continue
		}
		for _, f := range impurities(s) {
			t.Error(f)
		}
	}
}

// TestAdaptersExist: a name on the list that no package has is an open door.
func TestAdaptersExist(t *testing.T) {
	have := map[string]bool{}
	for _, s := range tree(t) {
		have[s.dir()] = true
	}
	for _, list := range []map[string]string{adapters, testSupport} {
		for dir := range list {
			if !have[dir] {
				t.Errorf("%s is on a list of purity_test.go but holds no Go file", dir)
			}
		}
	}
}

func TestPurityRuleFindsFaults(t *testing.T) {
	tests := map[string]struct {
		src string
		ok  bool
	}{
		"clean":           {`import ("time"; "sort"); func f(d time.Duration) { sort.Ints(nil); _ = d * time.Second }`, true},
		"seeded random":   {`import "math/rand/v2"; func f(r *rand.Rand) { _ = rand.New(rand.NewPCG(1, 2)) }`, true},
		"constants":       {`import "runtime"; const os = runtime.GOOS`, true},
		"cpu features":    {`import "golang.org/x/sys/cpu"; var fast = cpu.X86.HasAVX2`, true},
		"clock":           {`import "time"; func f() { _ = time.Now() }`, false},
		"clock, renamed":  {`import clock "time"; func f() { _ = clock.Now() }`, false},
		"clock, by value": {`import "time"; var now = time.Now`, false},
		"sleep":           {`import "time"; func f() { time.Sleep(1) }`, false},
		"dot import":      {`import . "time"; func f() { _ = Now() }`, false},
		"goroutine":       {`func f() { go f() }`, false},
		"nested":          {`func f() { func() { go f() }() }`, false},
		"lock":            {`import "sync"; var mu sync.Mutex`, false},
		"atomic":          {`import "sync/atomic"; var n atomic.Int64`, false},
		"files":           {`import "os"; var _ = os.Args`, false},
		"processes":       {`import "os/exec"; var _ = exec.Command`, false},
		"network":         {`import "net/http"; var _ = http.Get`, false},
		"global random":   {`import "math/rand/v2"; var n = rand.IntN(3)`, false},
		"old random":      {`import "math/rand"; var r = rand.New(nil)`, false},
		"true random":     {`import "crypto/rand"; var _ = rand.Reader`, false},
		"log":             {`import "log/slog"; var _ = slog.Info`, false},
		"stdout":          {`import "fmt"; func f() { fmt.Println() }`, false},
		"builtin print":   {`func f() { println(1) }`, false},
		"scheduler":       {`import "runtime"; func f() { runtime.Gosched() }`, false},
		"bus":             {`import "github.com/nats-io/nats.go"; var _ nats.Msg`, false},
		"context":         {`import "context"; var c = context.Background()`, false},
		"globbing":        {`import "path/filepath"; var _ = filepath.Glob`, false},
		"system calls":    {`import "golang.org/x/sys/unix"; var _ = unix.Mmap`, false},
	}
	for name, tt := range tests {
		s := fake(t, "planner/split.go", "package planner\n"+tt.src+"\n")
		if got := impurities(s); (len(got) == 0) != tt.ok {
			t.Errorf("%s: pure should be %t, findings %q", name, tt.ok, got)
		}
	}
	for dir, want := range map[string]bool{
		"planner": true, "kvtier": true, "gpuexec/goengine": true, "streams/simrun": true,
		"streams/jsrun": false, "services/weir": false, "e2e/rules": false, "schemas": false,
	} {
		if isPure(dir) != want {
			t.Errorf("isPure(%s) = %t", dir, !want)
		}
	}
}
