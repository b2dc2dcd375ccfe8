package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/services/proc"
)

// Options of a stack. The zero value is a stack on the default engine and model
// with one prefill and one decode executor.
type Options struct {
	// Args are further flags of `weir up`; they come last and win.
	Args []string
	// Dir keeps store, logs and model; "" makes one that Stop removes.
	Dir string
	// NATS is the URL of a server that runs apart; "" means an embedded one.
	NATS string
	// Env are further variables, "NAME=value".
	Env []string
	// ReadyWait bounds the start, 90 s by default.
	ReadyWait time.Duration
}

// Bounds of a stop.
const (
	stopWait = 20 * time.Second // from SIGINT to the supervisor's end
	goneWait = 10 * time.Second // from the supervisor's end to its children's
)

// Stack is a running `weir up`.
type Stack struct {
	Ready Event // what the supervisor said when it was ready

	cmd     *exec.Cmd
	life    *os.File // the supervisor ends when this is closed, or this process ends
	dir     string
	ownDir  bool
	stderr  *tail
	events  *events
	exited  chan struct{}
	exitErr error

	mu    sync.Mutex
	conns map[string]*nats.Conn
	close []func()
	done  bool
}

// Launch starts a stack and returns when it is ready to take turns.
func Launch(ctx context.Context, o Options) (*Stack, error) {
	bin, err := Binary()
	if err != nil {
		return nil, err
	}
	s := &Stack{dir: o.Dir, stderr: &tail{}, events: newEvents(), exited: make(chan struct{}), conns: map[string]*nats.Conn{}}
	if s.dir == "" {
		s.ownDir = true
		if s.dir, err = os.MkdirTemp("", "weir-stack-"); err != nil {
			return nil, err
		}
	}
	natsFlag := o.NATS
	if natsFlag == "" {
		natsFlag = "127.0.0.1:0"
	}
	// Roles stay as a test sets them, unless it asks for a planner in Args.
	args := append([]string{"up", "--dir", s.dir, "--nats", natsFlag, "--http", "127.0.0.1:0", "-o", "json", "--planner", "off"}, o.Args...)
	if err := s.start(bin, args, o.Env); err != nil {
		return nil, errors.Join(err, s.removeDir())
	}
	wait := o.ReadyWait
	if wait <= 0 {
		wait = 90 * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("not ready within %s", wait))
	defer cancel()
	s.Ready, _, err = s.events.wait(ctx, 0, "ready", func(e *Event) bool { return e.Event == "ready" })
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, s.Logs(20))
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Stack) start(bin string, args, env []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // the child has its own copy
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), proc.EnvParent+"=3", "WEIR_LLAMA_LIB="+Libraries())
	cmd.Env = append(cmd.Env, env...)
	cmd.ExtraFiles = []*os.File{r}
	cmd.Stderr = s.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("stack: starting %s: %w", bin, err), w.Close())
	}
	s.cmd, s.life = cmd, w
	go func() {
		s.events.follow(out) // to its end, before Wait closes the pipe
		s.exitErr = cmd.Wait()
		close(s.exited)
	}()
	return nil
}

// Dir is the stack's folder; its logs are in Dir/logs.
func (s *Stack) Dir() string { return s.dir }

// Supervisor is the process id of `weir up` itself.
func (s *Stack) Supervisor() int { return s.cmd.Process.Pid }

// Processes are the children as they run now, by id.
func (s *Stack) Processes() map[string]Process {
	out := map[string]Process{}
	for _, e := range s.events.list() {
		switch e.Event {
		case "ready":
			for _, p := range e.Processes {
				out[p.ID] = p
			}
		case "restarted":
			out[e.ID] = e.Process
		}
	}
	return out
}

// Events are all that the supervisor said so far.
func (s *Stack) Events() []Event { return s.events.list() }

// PID is the process id of a child, 0 when there is none of that id.
func (s *Stack) PID(id string) int { return s.Processes()[id].PID }

// Kill sends a signal to a child and returns the process that got it.
func (s *Stack) Kill(id string, sig syscall.Signal) (pid int, err error) {
	pid = s.PID(id)
	if pid == 0 {
		return 0, fmt.Errorf("stack: there is no process %q", id)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return pid, fmt.Errorf("stack: signal %v to %s, process %d: %w", sig, id, pid, err)
	}
	return pid, nil
}

// WaitRestarted waits until a child runs that is not the process old, as Kill
// returned it.
func (s *Stack) WaitRestarted(ctx context.Context, id string, old int) (Event, error) {
	e, _, err := s.events.wait(ctx, 0, fmt.Sprintf("%s started again after process %d", id, old), func() func(*Event) bool {
		seen := false
		return func(e *Event) bool {
			if e.Event == "ready" {
				for _, p := range e.Processes {
					seen = seen || p.PID == old
				}
			}
			if e.ID != id || e.Event != "restarted" {
				return false
			}
			if e.PID == old {
				seen = true
				return false
			}
			return seen
		}
	}())
	return e, err
}

// WaitExit waits until the supervisor itself has ended, and returns its error.
func (s *Stack) WaitExit(ctx context.Context) error {
	select {
	case <-s.exited:
		return s.exitErr
	case <-ctx.Done():
		return fmt.Errorf("stack: the supervisor, process %d, still runs: %w", s.Supervisor(), context.Cause(ctx))
	}
}

// Stop ends the stack as Ctrl-C does and reports what it left behind. A second
// call does nothing.
func (s *Stack) Stop() error {
	s.mu.Lock()
	if s.done {
		s.mu.Unlock()
		return nil
	}
	s.done = true
	closers, conns := s.close, s.conns
	s.mu.Unlock()
	for _, f := range closers {
		f()
	}
	for _, nc := range conns {
		nc.Close()
	}
	var errs []error
	select {
	case <-s.exited:
	default:
		_ = s.cmd.Process.Signal(os.Interrupt) // if it ends by itself meanwhile, all the better
	}
	select {
	case <-s.exited:
	case <-time.After(stopWait):
		errs = append(errs, fmt.Errorf("stack: `weir up` did not end within %s of SIGINT\n%s", stopWait, s.Logs(20)))
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	_ = s.life.Close()
	if s.Ready.Event != "" {
		errs = append(errs, s.Leftovers(goneWait))
	}
	return errors.Join(append(errs, s.removeDir())...)
}

func (s *Stack) removeDir() error {
	if !s.ownDir {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// Logs are the last n lines of each process's log.
func (s *Stack) Logs(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "--- weir up\n%s", s.stderr.String())
	files, _ := filepath.Glob(filepath.Join(s.dir, "logs", "*.log")) // the pattern is well formed
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			fmt.Fprintf(&b, "--- %s: %v\n", f, err)
			continue
		}
		lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
		fmt.Fprintf(&b, "--- %s\n%s\n", filepath.Base(f), strings.Join(lines[max(0, len(lines)-n):], "\n"))
	}
	return b.String()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 16 << 10

// Write appends and never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailBytes {
		t.b = bytes.Clone(t.b[len(t.b)-tailBytes:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
