package up

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	stopWait    = 8 * time.Second
)

// child is one supervised process.
type child struct {
	id   string
	role string // control, tier, prefill, decode, mixed
	args []string
	log  io.Writer
	env  []string

	onStart func(c *child, pid int, again bool)
	onEnd   func(c *child, err error)

	mu   sync.Mutex
	cmd  *exec.Cmd
	pipe *os.File
}

// run starts the child and starts it again until ctx ends. It returns an error
// when the child cannot be kept alive.
func (c *child) run(ctx context.Context) error {
	early, pause := 0, restartMin
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
		if early++; early >= maxEarly {
			return fmt.Errorf("%s ended %d times in a row, the last time by: %s; see its log", c.id, early, proc.Cause(err))
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
	cmd.Env = append(append(os.Environ(), c.env...), proc.EnvParent+"=3")
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
	c.cmd, c.pipe = cmd, w
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
