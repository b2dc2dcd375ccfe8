package compose

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoEngine: a machine without a usable engine is told from a broken stack, with
// the reason, and nothing is left behind.
func TestNoEngine(t *testing.T) {
	for name, c := range map[string]struct {
		programs map[string]string // what stands on the PATH
		want     string
		root     bool // only root gets that far
	}{
		"nothing installed":  {nil, "docker is not installed", false},
		"only the client":    {map[string]string{"docker": "exit 1"}, "dockerd is not installed", false},
		"dockerd that fails": {map[string]string{"docker": "exit 1", "dockerd": "echo no bridge >&2; exit 1"}, "dockerd ended: no bridge", true},
		"no Compose":         {map[string]string{"docker": `[ "$1" = version ]`}, "neither docker compose nor docker-compose", false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				t.Skip("only root can start dockerd")
			}
			dir, tmp := t.TempDir(), t.TempDir()
			for program, script := range c.programs {
				if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			t.Setenv("TMPDIR", tmp)
			t.Setenv("WEIR_CACHE", t.TempDir())
			_, err := StartEngine(t.Context())
			if !errors.Is(err, ErrNoEngine) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
