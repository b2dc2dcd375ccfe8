// Package node puts JavaScript programs of tests and their npm packages into a
// folder outside the repository and runs them.
package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
)

// ErrAbsent: node, npm or a package cannot be had here.
var ErrAbsent = errors.New("node: not installed")

// installWait bounds one installation.
const installWait = 3 * time.Minute

// Install copies the files of a folder of the repository, such as
// "e2e/connect/js", and installs the packages that its package-lock.json pins, once
// per lock file for all test processes of this user. It returns the folder.
func Install(ctx context.Context, src string) (dir string, err error) {
	for _, p := range []string{"node", "npm"} {
		if _, err := exec.LookPath(p); err != nil {
			return "", fmt.Errorf("%w: %s", ErrAbsent, p)
		}
	}
	root, err := stack.Root()
	if err != nil {
		return "", err
	}
	from := filepath.Join(root, filepath.FromSlash(src))
	lockFile, err := os.ReadFile(filepath.Join(from, "package-lock.json"))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(lockFile, src...))
	if dir, err = stack.Shared("node-" + hex.EncodeToString(sum[:6])); err != nil {
		return "", err
	}
	unlock, err := stack.Lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := copyFiles(from, dir); err != nil {
		return "", err
	}
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(ctx, installWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: npm ci: %w\n%s", ErrAbsent, err, out)
	}
	return dir, os.WriteFile(done, nil, 0o600)
}

// copyFiles copies the plain files of a folder.
func copyFiles(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		// A process that runs the program now must not read half of it.
		part := filepath.Join(to, "."+e.Name()+".part")
		if err := errors.Join(os.WriteFile(part, b, 0o600), os.Rename(part, filepath.Join(to, e.Name()))); err != nil {
			return err
		}
	}
	return nil
}

// Run runs a program of an installed folder and returns what it printed. The error
// has what it wrote to standard error.
func Run(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "node", append([]string{program}, args...)...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("node %s: %w\n%s", program, errors.Join(err, context.Cause(ctx)), errs.String())
	}
	return out.Bytes(), nil
}
