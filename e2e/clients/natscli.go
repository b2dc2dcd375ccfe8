package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weir-dev/weir/e2e/node"
	"github.com/weir-dev/weir/e2e/stack"
)

// natsCLI is the pinned nats command line.
const natsCLI = "github.com/nats-io/natscli/nats@v0.5.0"

// Nats returns a nats command line: that of the PATH, or one installed at the first
// call into a folder that all test processes of this user share.
func Nats(ctx context.Context) (path string, err error) {
	if p, err := exec.LookPath("nats"); err == nil {
		return p, nil
	}
	dir, err := stack.Shared("natscli")
	if err != nil {
		return "", err
	}
	unlock, err := stack.Lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	path = filepath.Join(dir, "nats")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", natsCLI)
	cmd.Dir = dir // outside of this repository's workspace
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: go install %s: %w\n%s", node.ErrAbsent, natsCLI, err, out)
	}
	return path, nil
}
