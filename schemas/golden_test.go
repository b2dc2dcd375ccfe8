package schemas_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/schemas"
)

func typeName(m message) string { return reflect.TypeOf(m.new()).Elem().Name() }

func compact(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestGoldenRoundTrip: what was written by an earlier build is read, and written
// again as the same bytes.
func TestGoldenRoundTrip(t *testing.T) {
	for _, g := range goldens(t) {
		m := g.of.new()
		if err := schemas.Decode(g.body, m); err != nil {
			t.Errorf("%s: %v", g.file, err)
			continue
		}
		b, err := schemas.Encode(m)
		if err != nil {
			t.Errorf("%s: %v", g.file, err)
			continue
		}
		if diff := cmp.Diff(string(compact(t, g.body)), string(b)); diff != "" {
			t.Errorf("%s changes on its way (-golden +encoded):\n%s", g.file, diff)
		}
	}
}

// TestGoldenOnItsSubject: the subject alone decides the kind, and Body returns
// the same message.
func TestGoldenOnItsSubject(t *testing.T) {
	for _, g := range goldens(t) {
		if g.of.subject == "" {
			continue
		}
		m, err := schemas.DecodeMsg(g.of.subject, g.body)
		if err != nil {
			t.Errorf("%s on %s: %v", g.file, g.of.subject, err)
			continue
		}
		if m.Kind != g.of.kind || m.Subject != g.of.subject {
			t.Errorf("%s: kind %d on %q, want %d on %q", g.file, m.Kind, m.Subject, g.of.kind, g.of.subject)
		}
		if got, want := reflect.TypeOf(m.Body()), reflect.TypeOf(g.of.new()); got != want {
			t.Errorf("%s: body is %v, want %v", g.file, got, want)
		}
		if b, err := schemas.Encode(m.Body()); err != nil || !bytes.Equal(b, compact(t, g.body)) {
			t.Errorf("%s: body does not encode to the golden (%v)", g.file, err)
		}
	}
}

// TestGoldensShowEveryField: a field that no golden holds could change its name
// without a test noticing.
func TestGoldensShowEveryField(t *testing.T) {
	seen := map[string]map[string]bool{}
	for _, g := range goldens(t) {
		var v any
		if err := json.Unmarshal(g.body, &v); err != nil {
			t.Fatal(err)
		}
		if seen[g.of.name] == nil {
			seen[g.of.name] = map[string]bool{}
		}
		markPaths("", v, seen[g.of.name])
	}
	for _, m := range messages() {
		for _, p := range fieldPaths("", reflect.TypeOf(m.new()).Elem()) {
			if !seen[m.name][p] {
				t.Errorf("no golden of %s holds %s: add it to testdata/%s.json or a variant of it", m.name, p, m.name)
			}
		}
	}
}

func markPaths(at string, v any, seen map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			seen[at+"."+k] = true
			markPaths(at+"."+k, e, seen)
		}
	case []any:
		for _, e := range v {
			markPaths(at, e, seen)
		}
	}
}

// fieldPaths lists the JSON paths of a struct type; array elements share the
// path of their array, embedded structs that of their parent.
func fieldPaths(at string, t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var out []string
	for f := range t.Fields() {
		if f.Anonymous {
			out = append(out, fieldPaths(at, f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, at+"."+name)
		out = append(out, fieldPaths(at+"."+name, f.Type)...)
	}
	return out
}

func TestFieldNamesAreOneCase(t *testing.T) {
	for _, m := range messages() {
		for _, p := range fieldPaths("", reflect.TypeOf(m.new()).Elem()) {
			if p == "" || strings.ToLower(p) != p || strings.HasSuffix(p, ".") {
				t.Errorf("%s: field %q has no lower-case JSON name", m.name, p)
			}
		}
	}
}
