package badinput

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
	"strings"
	"syscall"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
)

// Start is a command that must fail, and how.
type Start struct {
	Name string
	Args []string // after "weir"; up, serve and doctor get the folder too
	Env  []string
	Dir  string // the folder; "" makes one
	// Code is the exit code; Says are parts of what it must print.
	Code int
	Says []string
}

// startWait bounds a start that fails: what takes longer counts as hung.
const startWait = 40 * time.Second

// Try runs the command and reports what is not as it must be: the exit code, the
// text, a process or shared memory that is left.
func (c *Start) Try(ctx context.Context) error {
	bin, err := stack.Binary()
	if err != nil {
		return err
	}
	dir := c.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "weir-badstart-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	args := c.Args[:1:1]
	switch c.Args[0] {
	case "up":
		args = append(args, "--dir", dir, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--kv-mem", "16MiB")
	case "serve", "doctor":
		args = append(args, "--dir", dir)
	}
	cmd := exec.CommandContext(ctx, bin, append(args, c.Args[1:]...)...)
	cmd.Env = append(append(os.Environ(), "WEIR_LLAMA_LIB="+stack.Libraries()), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: it did not end within %s: %s", c.Name, startWait, text)
	case err == nil:
		return fmt.Errorf("%s: it did not fail: %s", c.Name, text)
	case !errors.As(err, &exit):
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	errs := []error{left(dir)}
	if exit.ExitCode() != c.Code {
		errs = append(errs, fmt.Errorf("the exit code is %d, want %d", exit.ExitCode(), c.Code))
	}
	for _, s := range c.Says {
		if !bytes.Contains(text, []byte(s)) {
			errs = append(errs, fmt.Errorf("it does not say %q", s))
		}
	}
	if crash.Match(text) {
		errs = append(errs, errors.New("it crashed"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w\n%s", c.Name, err, text)
	}
	return nil
}

// left finds processes and shared memory of a folder whose stack has ended.
func left(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	var errs []error
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
	for _, l := range lines {
		if b, err := os.ReadFile(l); err == nil && strings.Contains(string(b), "\x00--dir\x00"+abs+"\x00") {
			errs = append(errs, fmt.Errorf("a process is left: %s", strings.ReplaceAll(string(b), "\x00", " ")))
		}
	}
	sum := sha256.Sum256([]byte(abs))
	arena := filepath.Join("/dev/shm", "weir-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(arena); err == nil {
		errs = append(errs, fmt.Errorf("shared memory %s is left", arena))
	}
	return errors.Join(errs...)
}
