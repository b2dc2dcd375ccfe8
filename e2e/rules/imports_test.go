package rules

import (
	"fmt"
	"strings"
	"testing"
)

// middle are the folders that know schemas and themselves, never each other.
var middle = map[string]bool{"streams": true, "kvtier": true, "planner": true, "gpuexec": true}

// importFault says why the file must not import that path, or "".
//
//	schemas <- streams, kvtier, planner, gpuexec <- services <- e2e
func importFault(file string, test bool, imp string) string {
	if imp == "C" {
		return "cgo: weir cross-builds without a C compiler; libraries are called through purego"
	}
	from, _, _ := strings.Cut(file, "/")
	first, _, _ := strings.Cut(imp, "/")
	std := !strings.Contains(first, ".")
	if imp != modulePath && !strings.HasPrefix(imp, modulePath+"/") {
		if from == "schemas" && !std && !test {
			return "schemas imports the standard library only"
		}
		return ""
	}
	to, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(imp, modulePath), "/"), "/")
	switch {
	case to == from:
		return ""
	case from == "e2e":
		return ""
	case from == "docs":
		return "" // examples are programs of users
	case to == "services" || to == "e2e":
		return fmt.Sprintf("nobody imports %s", to)
	case from == "services":
		return ""
	case middle[from] && to == "schemas":
		return ""
	case middle[from]:
		return fmt.Sprintf("%s may import schemas, not %s; let services join them", from, to)
	case from == "schemas":
		return "schemas imports the standard library only"
	}
	return fmt.Sprintf("%q is none of the folders of the design; add its rule here", from)
}

func importFaults(files []source) []string {
	var out []string
	for _, s := range files {
		for _, imp := range s.imports() {
			if why := importFault(s.path, s.test, imp); why != "" {
				out = append(out, fmt.Sprintf("%s imports %s: %s", s.path, imp, why))
			}
		}
	}
	return out
}

func TestImports(t *testing.T) {
	for _, f := range importFaults(tree(t)) {
		t.Error(f)
	}
}

func TestImportRuleFindsFaults(t *testing.T) {
	const m = modulePath + "/"
	tests := []struct {
		file, imp string
		ok        bool
	}{
		{"schemas/a.go", "encoding/json", true},
		{"schemas/a.go", m + "schemas/internal/x", true},
		{"schemas/a.go", "github.com/google/go-cmp/cmp", false},
		{"schemas/a_test.go", "github.com/google/go-cmp/cmp", true},
		{"schemas/a_test.go", m + "streams", false},
		{"schemas/a.go", m + "streams", false},
		{"streams/jsrun/a.go", m + "streams", true},
		{"streams/jsrun/a.go", m + "schemas", true},
		{"streams/jsrun/a.go", "github.com/nats-io/nats.go", true},
		{"streams/a.go", m + "kvtier", false},
		{"kvtier/hostmem/a.go", m + "gpuexec", false},
		{"kvtier/hostmem/a_test.go", m + "gpuexec", false},
		{"planner/route/a.go", m + "kvtier", false},
		{"gpuexec/a.go", m + "planner/route", false},
		{"gpuexec/a.go", m + "services/weir", false},
		{"streams/a.go", m + "e2e/rules", false},
		{"services/weir/a.go", m + "gpuexec/llamacpp", true},
		{"services/weir/a.go", m + "e2e/rules", false},
		{"e2e/a_test.go", m + "services/weir", true},
		{"e2e/a_test.go", m + "planner", true},
		{"util/a.go", m + "schemas", false},
		{"gpuexec/llamacpp/a.go", "C", false},
	}
	for _, tt := range tests {
		src := fake(t, tt.file, fmt.Sprintf("package a\n\nimport _ %q\n", tt.imp))
		if got := importFaults([]source{src}); (len(got) == 0) != tt.ok {
			t.Errorf("%s imports %s: allowed should be %t, faults %q", tt.file, tt.imp, tt.ok, got)
		}
	}
}
