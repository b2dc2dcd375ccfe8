package chat

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden renderings anew")

// Golden renderings of templates in the style of each family; e2e/jinja holds the
// same templates and conversations against two other engines.
func TestFamilyGoldens(t *testing.T) {
	var talks []struct {
		Name     string            `json:"name"`
		Messages []json.RawMessage `json:"messages"`
		Tools    []json.RawMessage `json:"tools"`
		Kwargs   json.RawMessage   `json:"kwargs"`
		Generate bool              `json:"generate"`
	}
	b, err := os.ReadFile(filepath.Join("testdata", "conversations.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &talks); err != nil {
		t.Fatal(err)
	}
	templates := map[string]string{"default": Fallback}
	for _, f := range Families() {
		b, err := os.ReadFile(filepath.Join("testdata", "families", string(f)+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := FamilyOf(string(b)); !ok || got != f {
			t.Errorf("%s.jinja is of family %q", f, got)
		}
		templates[string(f)] = string(b)
	}
	if f, ok := FamilyOf(Fallback); !ok || f != Hermes {
		t.Errorf("the default template is of family %q", f)
	}
	for name, source := range templates {
		t.Run(name, func(t *testing.T) {
			tmpl, err := Compile(source)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for _, talk := range talks {
				text, err := tmpl.Render(Input{
					Messages: talk.Messages, Tools: talk.Tools, Kwargs: talk.Kwargs, AddGenerationPrompt: talk.Generate,
					BOS: "<s>", EOS: "</s>", Now: time.Date(2026, 12, 1, 9, 5, 3, 0, time.UTC),
				})
				if err != nil {
					text = "error: " + err.Error()
				}
				fmt.Fprintf(&out, "=== %s\n%s\n", talk.Name, text)
			}
			file := filepath.Join("testdata", "golden", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s", out.String(), want)
			}
		})
	}
}
