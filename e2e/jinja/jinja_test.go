package jinja

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-dev/weir/e2e/node"
	"github.com/weir-dev/weir/gpuexec/chat"
)

var (
	seeds = flag.Int("jinja.seeds", 300, "random templates per engine")
	first = flag.Uint64("jinja.first", 1, "first seed")
)

type engine func(ctx context.Context, cases []Case, tmp string) ([]Result, error)

// compare renders all cases with both engines. At least share of them must render
// with the other one, or the comparison would say little.
func compare(t *testing.T, other engine, cases []Case, share float64) {
	t.Helper()
	want, err := other(t.Context(), cases, t.TempDir())
	if errors.Is(err, node.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	rendered, wrong := 0, 0
	for i, c := range cases {
		if want[i].Error != "" {
			continue
		}
		rendered++
		got := c.Ours()
		if got == want[i] {
			continue
		}
		if wrong++; wrong > 3 {
			continue
		}
		kwargs, _ := json.Marshal(c.Kwargs)
		t.Errorf("case %d\n%s\nmessages %s\nkwargs %s\ngot  %q %s\nwant %q", i, c.Template, c.Messages, kwargs, got.Text, got.Error, want[i].Text)
	}
	t.Logf("%d of %d templates render with the other engine, %d differ", rendered, len(cases), wrong)
	if float64(rendered) < share*float64(len(cases)) {
		t.Errorf("only %d of %d cases render with the other engine", rendered, len(cases))
	}
	if wrong > 3 {
		t.Errorf("%d cases differ", wrong)
	}
}

func random(full bool) []Case {
	var cases []Case
	for i := range *seeds {
		cases = append(cases, Random(*first+uint64(i), full))
	}
	return cases
}

// Random templates, on the engine in JavaScript and on the one that transformers uses.
func TestRandom(t *testing.T) {
	t.Run("node", func(t *testing.T) { compare(t, Node, random(false), 0.9) })
	t.Run("python", func(t *testing.T) { compare(t, Python, random(true), 0.9) })
}

// Features one by one. Lines of features.txt that begin with "python " use what the
// engine in JavaScript lacks or does otherwise than transformers.
func TestFeatures(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "features.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var both, python []Case
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		text, only := strings.CutPrefix(line, "python ")
		c := Case{Template: strings.NewReplacer(`\N`, "\n").Replace(text), Messages: conversation(t), Kwargs: map[string]any{
			"d": map[string]any{"a": 1, "list": []int{5, 6}, "nested": map[string]any{"k": "v"}, "empty": map[string]any{}}, "s": "hello wOrld's end",
		}}
		python = append(python, c)
		if !only {
			both = append(both, c)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Run("node", func(t *testing.T) { compare(t, Node, both, 1) })
	t.Run("python", func(t *testing.T) { compare(t, Python, python, 1) })
}

func conversation(t *testing.T) []json.RawMessage {
	t.Helper()
	var out []json.RawMessage
	const text = `[{"role":"system","content":"Sys 한국어"},{"role":"user","content":" hi <b> "},
		{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"x":1,"y":"é"}}}]},
		{"role":"tool","content":"res","tool_call_id":"c1"}]`
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The families' templates and the default one, over conversations with everything in.
func TestFamilies(t *testing.T) {
	root := filepath.Join("..", "..", "gpuexec", "chat", "testdata")
	var talks []struct {
		Name     string
		Messages []json.RawMessage
		Tools    []json.RawMessage
		Kwargs   map[string]any
		Generate bool
	}
	b, err := os.ReadFile(filepath.Join(root, "conversations.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &talks); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "families", "*.jinja"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%d templates: %v", len(files), err)
	}
	templates := []string{chat.Fallback}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, string(b))
	}
	var cases []Case
	for _, template := range templates {
		for _, talk := range talks {
			cases = append(cases, Case{Template: template, Messages: talk.Messages, Tools: talk.Tools, Kwargs: talk.Kwargs, Generate: talk.Generate})
		}
	}
	t.Run("node", func(t *testing.T) { compare(t, Node, cases, 0.7) })
	t.Run("python", func(t *testing.T) { compare(t, Python, cases, 0.7) })
}
