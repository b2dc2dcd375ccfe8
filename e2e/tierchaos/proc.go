package tierchaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is a child under control of the run.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // closed when the process has ended
	name  string
}

// patience bounds every wait for a child.
const patience = 20 * time.Second

func start(role, dir, writer string, class int, seed uint64) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envRole+"="+role, envDir+"="+dir, envWriter+"="+writer,
		fmt.Sprintf("%s=%d", envClass, class), fmt.Sprintf("%s=%d", envSeed, seed))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, lines: make(chan []byte, 1024), name: role + " " + writer}
	go func() {
		defer close(p.lines)
		r := bufio.NewScanner(out)
		for r.Scan() {
			p.lines <- append([]byte(nil), r.Bytes()...)
		}
	}()
	return p, nil
}

func (p *process) tell(line string) { _, _ = io.WriteString(p.in, line+"\n") } // a dead child is noticed by its silence

// next reads one line as v.
func (p *process) next(v any) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			return fmt.Errorf("tierchaos: %s: %w", p.name, io.EOF)
		}
		return json.Unmarshal(line, v)
	case <-timer.C:
		return fmt.Errorf("tierchaos: %s says nothing for %v", p.name, patience)
	}
}

// ask sends a command to a daemon and returns its answer.
func (p *process) ask(cmd string) (daemonReply, error) {
	p.tell(cmd)
	var r daemonReply
	err := p.next(&r)
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	return r, err
}

// kill ends the process as kill -9 does and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.wait()
}

// wait reads what is left of the process's output until it has ended.
func (p *process) wait() {
	for range p.lines {
	}
	_ = p.cmd.Wait()
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }
