package flips

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/services/proc"
)

// planner is a process that runs weir's planner on a stack that has none.
type planner struct {
	args []string
	dir  string
	cmd  *exec.Cmd
	life *os.File
}

func newPlanner(s *stack.Stack, url string) *planner {
	p := &planner{dir: s.Dir()}
	p.args = []string{
		"serve", "--target", "planner", "--id", "planner", "--dir", s.Dir(), "--nats", url, "--cell", s.Ready.Cell,
		"--nats-replicas", "3", "--planner", "act",
	}
	return p
}

func (p *planner) runs() bool { return p.cmd != nil }

func (p *planner) start() error {
	bin, err := stack.Binary()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // the child has its own copy
	log, err := os.OpenFile(p.dir+"/logs/planner.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		_ = w.Close()
		return err
	}
	defer func() { _ = log.Close() }() // likewise
	cmd := exec.Command(bin, p.args...)
	cmd.Env = append(os.Environ(), proc.EnvParent+"=3")
	cmd.ExtraFiles = []*os.File{r}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return err
	}
	p.cmd, p.life = cmd, w
	return nil
}

// kill ends the planner as by kill -9 and starts it again after its lease has ended.
func (p *planner) kill(ctx context.Context) error {
	p.stop()
	pause(ctx, 4*time.Second)
	return p.start()
}

func (p *planner) stop() {
	if !p.runs() {
		return
	}
	_ = p.cmd.Process.Kill() // if it has ended by itself, all the better
	_ = p.cmd.Wait()
	_ = p.life.Close()
}
