package clients

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/node"
	"github.com/weir-dev/weir/e2e/stack"
)

// readmeLines are the lines of the README's code block that holds marker.
func readmeLines(t *testing.T, marker string) []string {
	t.Helper()
	root, err := stack.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split(string(text), "\n```") {
		if i%2 == 1 && strings.Contains(block, marker) {
			_, lines, _ := strings.Cut(block, "\n") // behind the fence
			return strings.Split(strings.TrimSpace(lines), "\n")
		}
	}
	t.Fatalf("README.md has no code block with %q", marker)
	return nil
}

// TestReadmeCommands runs the README's block of commands for a running stack, each
// as it is written. Only the gateway's address differs, because this stack has ports
// of its own; weir and nats get theirs from the environment.
func TestReadmeCommands(t *testing.T) {
	s := stack.Start(t, stack.Options{Args: []string{"--engine", "null", "--kv-mem", "64MiB"}})
	// The folder in which a reader stands: the binary is bin/weir there.
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(stack.Build(t), filepath.Join(dir, "bin", "weir")); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	_, short := exec.LookPath("nats")
	withNats := short == nil || !testing.Short()
	if withNats {
		bin, err := Nats(t.Context())
		if errors.Is(err, node.ErrAbsent) {
			withNats = false
		} else if err != nil {
			t.Fatal(err)
		}
		path = filepath.Dir(bin) + string(os.PathListSeparator) + path
	}
	for _, line := range readmeLines(t, "nats req") {
		t.Run(strings.ReplaceAll(strings.Join(strings.Fields(line)[:2], "_"), "/", "-"), func(t *testing.T) {
			if strings.HasPrefix(line, "nats ") && !withNats {
				t.Skip("the nats command is not installed")
			}
			if _, err := exec.LookPath(strings.Fields(line)[0]); err != nil && !strings.HasPrefix(line, "nats ") && !strings.HasPrefix(line, "bin/") {
				t.Skip(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(line, "http://127.0.0.1:8080", s.Ready.HTTP))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+path, "WEIR_NATS="+s.Ready.NATS, "NATS_URL="+s.Ready.NATS, "HOME="+dir, "WEIR_LLAMA_LIB="+stack.Libraries())
			out, err := cmd.CombinedOutput()
			t.Logf("$ %s\n%s", line, out)
			if err != nil {
				t.Fatal(err)
			}
			if len(strings.TrimSpace(string(out))) == 0 {
				t.Error("it printed nothing")
			}
			for _, bad := range []string{`"error"`, "Nats-Service-Error", "panic:"} {
				if strings.Contains(string(out), bad) {
					t.Errorf("the output has %s", bad)
				}
			}
		})
	}
}
