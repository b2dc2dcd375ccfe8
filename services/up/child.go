package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-dev/weir/services/proc"
)

// Bounds of restarting. A child that ends is started again at once, then after
// growing pauses; one that keeps ending before it was of any use ends the stack.
const (
	restartMin  = 50 * time.Millisecond
	restartMax  = 2 * time.Second
	steadyAfter = 10 * time.Second
	maxEarly    = 12 // ends in a row, each before steadyAfter
	// maxStart is the same for exits by itself before the stack was ever ready. It
	// will not get better then: what passes, such as a NATS that is still starting,
	// is waited for inside the child.
	maxStart = 2
	stopWait = 8 * time.Second
)

// child is one supervised process.
type child struct {
	id   string
	role string // control, tier, prefill, decode, mixed
	args []string
	log  io.Writer
	env  []string

	logPath string

	onStart  func(c *child, pid int, again bool)
	onEnd    func(c *child, err error)
	starting func() bool // the stack has never been ready

	mu   sync.Mutex
	cmd  *exec.Cmd
	boot string // of the life that runs, or ran last
	pipe *os.File
}

// run starts the child and starts it again until ctx ends. It returns an error
// when the child cannot be kept alive.
func (c *child) run(ctx context.Context) error {
	early, exits, pause := 0, 0, restartMin
	for again := false; ctx.Err() == nil; again = true {
		began := time.Now()
		err := c.once(ctx, again)
		if ctx.Err() != nil {
			return nil
		}
		c.onEnd(c, err)
		if time.Since(began) >= steadyAfter {
			early, pause = 0, restartMin
		}
		if c.starting() && exited(err) {
			if exits++; exits >= maxStart {
				return fmt.Errorf("%s cannot start: %s; log: %s", c.id, c.lastWords(), c.logPath)
			}
		}
		if early++; early >= maxEarly {
			return fmt.Errorf("%s ended %d times in a row, the last time by %s: %s; log: %s", c.id, early, proc.Cause(err), c.lastWords(), c.logPath)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, restartMax)
	}
	return nil
}

// exited: the process ended by itself and said that it failed.
func exited(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Exited()
}

// lastWords is the error that the child ended with, as its log has it.
func (c *child) lastWords() string {
	const tail = 8 << 10
	f, err := os.Open(c.logPath)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }() // only read
	st, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(tail, st.Size()))
	if _, err := f.ReadAt(b, st.Size()-int64(len(b))); err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if text, ok := strings.CutPrefix(lines[i], "weir: "); ok {
			return text
		}
	}
	return lines[len(lines)-1]
}

// once runs the child until it ends.
func (c *child) once(ctx context.Context, again bool) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, c.args...)
	boot := proc.NewBoot()
	cmd.Env = append(append(os.Environ(), c.env...), proc.EnvParent+"=3", proc.EnvBoot+"="+boot)
	cmd.ExtraFiles = []*os.File{r}
	cmd.Stdout, cmd.Stderr = c.log, c.log
	// A Ctrl-C on the terminal goes to the supervisor alone, which stops its
	// children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	_ = r.Close() // the child has its own copy
	if err != nil {
		_ = w.Close()
		return err
	}
	c.mu.Lock()
	c.cmd, c.pipe, c.boot = cmd, w, boot
	c.mu.Unlock()
	c.onStart(c, cmd.Process.Pid, again)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = c.stop(cmd, ended)
	}
	_ = w.Close()
	return err
}

// stop ends a running child: politely first.
func (c *child) stop(cmd *exec.Cmd, ended <-chan error) error {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Process.Signal(syscall.SIGCONT) // a stopped process would not hear of it
	select {
	case err := <-ended:
		return err
	case <-time.After(stopWait):
		_ = cmd.Process.Kill()
		return <-ended
	}
}

func openLog(dir, id string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o750); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, "logs", id+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
}
