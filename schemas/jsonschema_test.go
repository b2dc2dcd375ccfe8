package schemas_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weir-dev/weir/schemas"
)

var update = flag.Bool("update", false, "write schemas/jsonschema anew from the Go types")

// Patterns of ids; an optional one may also be "", which stands for its default.
const (
	idPattern         = `^[A-Za-z0-9_-]{1,64}$`
	optionalIDPattern = `^[A-Za-z0-9_-]{0,64}$`
)

// enums are the closed sets of words. What a field's own Check narrows further
// (an assignment is never draining) is in narrow.
var enums = map[reflect.Type][]any{
	reflect.TypeFor[schemas.Stage]():       {schemas.StageAgent, schemas.StageReady, schemas.StagePrefill, schemas.StageDecode},
	reflect.TypeFor[schemas.Outcome]():     {schemas.OutcomePrefilled, schemas.OutcomeDecoded, schemas.OutcomeReturned, schemas.OutcomeFailed},
	reflect.TypeFor[schemas.Status]():      {schemas.StatusOK, schemas.StatusFailed},
	reflect.TypeFor[schemas.Role]():        {schemas.RolePrefill, schemas.RoleDecode, schemas.RoleMixed, schemas.RoleDraining, schemas.RoleStandby},
	reflect.TypeFor[schemas.SizeClass]():   {schemas.SizeS, schemas.SizeM, schemas.SizeL},
	reflect.TypeFor[schemas.Medium]():      {schemas.MediumDevice, schemas.MediumHost, schemas.MediumDisk},
	reflect.TypeFor[schemas.TurnHint]():    {schemas.HintCompaction},
	reflect.TypeFor[schemas.BranchState](): {schemas.BranchRunning, schemas.BranchToolWaiting, schemas.BranchUserWaiting, schemas.BranchSuperseded, schemas.BranchEnded},
}

// limit is a bound that Check applies and a Go type cannot say.
// TestLimitsAreThoseOfCheck keeps the two in step.
type limit struct{ lo, hi float64 }

var limits = map[string]map[string]limit{
	"turn": {
		"temperature": {0, 2}, "top_p": {0, 1}, "min_p": {0, 1}, "frequency_penalty": {-2, 2}, "presence_penalty": {-2, 2},
		"repetition_penalty": {0.01, 10}, "max_tokens": {1, schemas.MaxTokens}, "max_completion_tokens": {1, schemas.MaxTokens},
		"top_k": {-1, 1 << 20}, "n": {1, 128}, "top_logprobs": {0, 20}, "best_of": {1, 20},
	},
	"event":        {"expected_ns": {0, math.Inf(1)}},
	"job":          {"attempt": {1, math.Inf(1)}},
	"done":         {"attempt": {1, math.Inf(1)}},
	"frame":        {"a": {1, math.Inf(1)}, "i": {0, math.Inf(1)}},
	"checkpoint":   {"attempt": {1, math.Inf(1)}},
	"sync_request": {"page": {0, math.Inf(1)}},
}

// ids are the fields that Check holds to the grammar of ids.
var ids = map[string][]string{
	"ready":           {"tenant", "session", "turn", "branch", "job"},
	"done":            {"job"},
	"cancel":          {"job"},
	"tokens_request":  {"session"},
	"session_request": {"tenant", "session"},
	"result":          {"tenant", "session", "turn"},
	"heartbeat":       {"executor"},
	"report":          {"executor"},
	"kv_notice":       {"node"},
	"sync_reply":      {"node"},
	"branch_change":   {"session"},
	"plan":            {"id"},
	"dead":            {"tenant"},
	"lease":           {"holder"},
}

// optionalIDs are ids that may be empty.
var optionalIDs = map[string][]string{
	"event": {"branch", "turn", "parent"},
}

// narrow are enums of one field that are smaller than those of its type.
var narrow = map[string]map[string][]any{
	"job":        {"stage": {schemas.StagePrefill, schemas.StageDecode}},
	"assignment": {"role": {schemas.RolePrefill, schemas.RoleDecode, schemas.RoleMixed, schemas.RoleStandby}},
}

func number(v float64) json.Number {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return json.Number(b)
}

// mapType gives the schema of types whose JSON is not what their Go kind suggests.
func mapType(t reflect.Type) *jsonschema.Schema {
	limit := func(n uint64) *uint64 { return &n }
	switch t {
	case reflect.TypeFor[schemas.Tokens]():
		item := &jsonschema.Schema{Type: "integer", Minimum: number(math.MinInt32), Maximum: number(math.MaxInt32)}
		return &jsonschema.Schema{Type: "array", Items: item, MaxItems: limit(schemas.MaxTokens)}
	case reflect.TypeFor[schemas.StopList]():
		one := &jsonschema.Schema{Type: "string", MinLength: limit(1), MaxLength: limit(schemas.MaxStopLen)}
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{one, {Type: "array", Items: one, MaxItems: limit(schemas.MaxStops)}}}
	}
	if words, ok := enums[t]; ok {
		return &jsonschema.Schema{Type: "string", Enum: words}
	}
	return nil
}

// generate returns the JSON Schema of a message: draft 2020-12, closed objects,
// descriptions from the Go comments.
func generate(t testing.TB, m message) []byte {
	t.Helper()
	r := &jsonschema.Reflector{Anonymous: true, ExpandedStruct: true, Mapper: mapType}
	if err := r.AddGoComments("github.com/weir-dev/weir/schemas", "./", jsonschema.WithFullComment()); err != nil {
		t.Fatal(err)
	}
	s := r.Reflect(m.new())
	s.Title = typeName(m)
	refine(t, m.name, s)
	if m.name == "turn" {
		acceptNull(s)
	}
	for _, def := range s.Definitions {
		joinLines(def)
	}
	joinLines(s)
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

func refine(t testing.TB, name string, s *jsonschema.Schema) {
	t.Helper()
	prop := func(field string) *jsonschema.Schema {
		p, ok := s.Properties.Get(field)
		if !ok {
			t.Fatalf("%s has no field %s; correct the tables of jsonschema_test.go", name, field)
		}
		return p
	}
	for field, l := range limits[name] {
		p := prop(field)
		p.Minimum = number(l.lo)
		if !math.IsInf(l.hi, 1) {
			p.Maximum = number(l.hi)
		}
	}
	for _, field := range ids[name] {
		prop(field).Pattern = idPattern
	}
	for _, field := range optionalIDs[name] {
		prop(field).Pattern = optionalIDPattern
	}
	if meta := s.Definitions["TurnMeta"]; meta != nil {
		for _, field := range []string{"turn", "branch", "parent"} {
			p, _ := meta.Properties.Get(field)
			p.Pattern = optionalIDPattern
		}
		p, _ := meta.Properties.Get("deadline_ns")
		p.Minimum = number(0)
		p, _ = meta.Properties.Get("v")
		p.Minimum, p.Maximum = number(0), number(schemas.Version)
	}
	for field, words := range narrow[name] {
		prop(field).Enum = words
	}
}

// acceptNull lets every field of a Chat Completions body be null: OpenAI's own
// clients send null for "not set", and the codec reads it as that.
func acceptNull(s *jsonschema.Schema) {
	body := reflect.TypeFor[schemas.Body]()
	for f := range body.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		p, ok := s.Properties.Get(name)
		if !ok || p.Type == "" && p.Ref == "" && p.OneOf == nil {
			continue // raw JSON: anything goes already
		}
		either := &jsonschema.Schema{Description: p.Description}
		inner := *p
		inner.Description = ""
		either.OneOf = []*jsonschema.Schema{&inner, {Type: "null"}}
		s.Properties.Set(name, either)
	}
}

// joinLines makes one line of descriptions that were wrapped in the source.
func joinLines(s *jsonschema.Schema) {
	s.Description = strings.Join(strings.Fields(s.Description), " ")
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		p.Value.Description = strings.Join(strings.Fields(p.Value.Description), " ")
	}
}

// TestSchemasInStep: the committed schemas are those of the Go types.
func TestSchemasInStep(t *testing.T) {
	for _, m := range messages() {
		file, want := "jsonschema/"+m.name+".json", generate(t, m)
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of step with schemas.%s; run `make schemas` and commit what changed (%v)", file, typeName(m), err)
		}
	}
	files, err := os.ReadDir("jsonschema")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(messages()) {
		t.Errorf("schemas/jsonschema holds %d files for %d messages; delete what no type belongs to", len(files), len(messages()))
	}
}

func compile(t testing.TB, name string) *validator.Schema {
	t.Helper()
	s, err := validator.NewCompiler().Compile("jsonschema/" + name + ".json")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// validate returns what the committed schema says about a body.
func validate(t testing.TB, name string, body []byte) error {
	t.Helper()
	v, err := validator.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return compile(t, name).Validate(v)
}

func TestGoldensMatchSchemas(t *testing.T) {
	for _, g := range goldens(t) {
		if err := validate(t, g.of.name, g.body); err != nil {
			t.Errorf("%s: %v", g.file, err)
		}
	}
}

// TestLimitsAreThoseOfCheck puts values at and beyond every bound that a schema
// states into a golden: codec and schema must agree on each.
func TestLimitsAreThoseOfCheck(t *testing.T) {
	for name, fields := range limits {
		for field, l := range fields {
			tests := map[float64]bool{l.lo: true, l.lo - 1: false}
			if !math.IsInf(l.hi, 1) {
				tests[l.hi], tests[l.hi+1] = true, false
			}
			for v, ok := range tests {
				agree(t, name, field, v, ok)
			}
		}
	}
	for optional, list := range map[bool]map[string][]string{false: ids, true: optionalIDs} {
		for name, fields := range list {
			for _, field := range fields {
				agree(t, name, field, strings.Repeat("a", schemas.MaxIDLen), true)
				agree(t, name, field, strings.Repeat("a", schemas.MaxIDLen+1), false)
				agree(t, name, field, "a.b", false)
				agree(t, name, field, "", optional)
			}
		}
	}
	for name, fields := range narrow {
		for field, words := range fields {
			for _, w := range words {
				agree(t, name, field, w, true)
			}
			agree(t, name, field, "draining", false)
			agree(t, name, field, "agent", false)
		}
	}
}

func agree(t *testing.T, name, field string, value any, ok bool) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // seeds do not fit a float
	if err := d.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	doc[field] = value
	b, err = json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := schemas.Decode(b, messageNamed(t, name).new()); (err == nil) != ok {
		t.Errorf("%s.%s = %v: the codec says %v, accepted should be %t", name, field, value, err, ok)
	}
	if err := validate(t, name, b); (err == nil) != ok {
		t.Errorf("%s.%s = %v: the schema says %v, accepted should be %t", name, field, value, err, ok)
	}
}
