package tracecmd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/services/serve"
)

func trace(args ...string) ([]byte, error) {
	c := NewCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&bytes.Buffer{})
	c.SetArgs(args)
	c.SilenceUsage = true
	err := c.Execute()
	return out.Bytes(), err
}

func TestChurnCommand(t *testing.T) {
	a, err := trace("churn", "--seed", "7", "--agents", "5", "--calls", "60")
	if err != nil {
		t.Fatal(err)
	}
	b, err := trace("churn", "--seed", "7", "--agents", "5", "--calls", "60")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("one seed gave two loads")
	}
	s, err := workload.Decode(bytes.NewReader(a))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Calls) != 60 || s.Seed != 7 {
		t.Errorf("%d calls, seed %d", len(s.Calls), s.Seed)
	}
}

func TestChurnCommandParams(t *testing.T) {
	all, err := trace("churn", "--show-params")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	same, err := trace("churn", "--calls", "50", "--params", file("all", string(all)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := trace("churn", "--calls", "50")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(same, plain) {
		t.Error("the shown parameters are not the defaults")
	}
	for text, want := range map[string]string{
		`{"Agent": 3}`:            "unknown field",
		`{"Screens": 2}`:          "Screens is 2",
		`{"Agents": "many"}`:      "Agents",
		`{"Tools": [{"Share":0}]`: "unexpected EOF",
	} {
		_, err := trace("churn", "--params", file("bad", text))
		if !errors.Is(err, serve.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := trace("churn", "--params", filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
