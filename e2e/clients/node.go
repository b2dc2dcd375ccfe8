package clients

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
)

// ErrAbsent: a program that a test needs is not installed here.
var ErrAbsent = errors.New("clients: not installed")

// Node installs the pinned openai package once per version, in a folder that all
// test processes of this user share, and returns the folder with client.mjs.
func Node(ctx context.Context) (dir string, err error) {
	for _, p := range []string{"node", "npm"} {
		if _, err := exec.LookPath(p); err != nil {
			return "", fmt.Errorf("%w: %s", ErrAbsent, p)
		}
	}
	root, err := stack.Root()
	if err != nil {
		return "", err
	}
	src := filepath.Join(root, "e2e", "clients", "npm")
	h := sha256.New()
	files := []string{"package.json", "package-lock.json", "client.mjs"}
	text := map[string][]byte{}
	for _, f := range files {
		if text[f], err = os.ReadFile(filepath.Join(src, f)); err != nil {
			return "", err
		}
		if f != "client.mjs" {
			h.Write(text[f])
		}
	}
	dir = filepath.Join(shared(), "npm-"+hex.EncodeToString(h.Sum(nil)[:6]))
	unlock, err := lock(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f), text[f], 0o600); err != nil {
			return "", err
		}
	}
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: npm ci: %w\n%s", ErrAbsent, err, out)
	}
	return dir, os.WriteFile(done, nil, 0o600)
}

// shared is the folder of things that are made once for all tests of this user.
func shared() string {
	return filepath.Join(os.TempDir(), "weir-e2e-"+strconv.Itoa(os.Getuid()))
}

// lock makes a folder and keeps other processes out of it.
func lock(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
