package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/weir-dev/weir/services/proc"
)

// NATS is a server in a process of its own, on its own store.
type NATS struct {
	URL string // the same after a restart

	dir    string
	ownDir bool
	listen string
	args   []string // further flags
	cmd    *exec.Cmd
	life   *os.File
	stderr *tail
	exited chan struct{}
}

// LaunchNATS starts a server on a free port. dir keeps its store; "" makes one that
// Stop removes.
func LaunchNATS(ctx context.Context, dir string) (*NATS, error) {
	n := &NATS{dir: dir, listen: "127.0.0.1:0", stderr: &tail{}}
	if dir == "" {
		var err error
		if n.dir, err = os.MkdirTemp("", "weir-nats-"); err != nil {
			return nil, err
		}
		n.ownDir = true
	}
	if err := n.Restart(ctx); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// Restart starts the server again on its port and store, after Kill.
func (n *NATS) Restart(ctx context.Context) error {
	bin, err := natsd()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // the child has its own copy
	cmd := exec.Command(bin, append([]string{"--dir", n.dir, "--listen", n.listen}, n.args...)...)
	cmd.Env = append(os.Environ(), proc.EnvParent+"=3")
	cmd.ExtraFiles = []*os.File{r}
	cmd.Stderr = n.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("stack: starting %s: %w", bin, err), w.Close())
	}
	n.cmd, n.life, n.exited = cmd, w, make(chan struct{})
	line := make(chan string, 1)
	exited := n.exited
	go func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			select {
			case line <- sc.Text():
			default:
			}
		}
		_ = cmd.Wait() // it is killed by its tests; how it ended is no news
		close(exited)
	}()
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	select {
	case n.URL = <-line:
		n.listen = strings.TrimPrefix(n.URL, "nats://")
		return nil
	case <-exited:
		return fmt.Errorf("stack: the NATS server ended: %s", n.stderr)
	case <-ctx.Done():
		return fmt.Errorf("stack: the NATS server did not start: %w: %s", ctx.Err(), n.stderr)
	}
}

// PID is the server's process id.
func (n *NATS) PID() int { return n.cmd.Process.Pid }

// Kill sends a signal. With SIGKILL, SIGTERM and SIGINT it waits for the end.
func (n *NATS) Kill(sig syscall.Signal) error {
	if err := n.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("stack: signal %v to the NATS server: %w", sig, err)
	}
	switch sig {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT:
		select {
		case <-n.exited:
			return n.life.Close()
		case <-time.After(stopWait):
			return fmt.Errorf("stack: the NATS server did not end within %s of %v", stopWait, sig)
		}
	}
	return nil
}

// Stop ends the server and removes its store if LaunchNATS made it.
func (n *NATS) Stop() error {
	var errs []error
	if n.cmd != nil {
		select {
		case <-n.exited:
		default:
			errs = append(errs, n.Kill(syscall.SIGKILL))
		}
	}
	if n.ownDir {
		errs = append(errs, os.RemoveAll(n.dir))
	}
	return errors.Join(errs...)
}
