package stack

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Leftovers reports processes, ports and shared memory of an ended stack that are
// still there after wait.
func (s *Stack) Leftovers(wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		err := s.leftovers()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		// Nothing tells when a foreign process or its port is gone.
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *Stack) leftovers() error {
	var errs []error
	for pid, what := range s.alive() {
		errs = append(errs, fmt.Errorf("stack: process %d (%s) still runs", pid, what))
	}
	for _, raw := range []string{s.Ready.HTTP, s.Ready.NATS} {
		u, err := url.Parse(raw)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if raw == s.Ready.NATS && !s.embedded() {
			continue // that server is not this stack's
		}
		c, err := net.DialTimeout("tcp", u.Host, time.Second)
		if err == nil {
			_ = c.Close()
			errs = append(errs, fmt.Errorf("stack: port %s still answers", u.Host))
		}
	}
	for _, dir := range s.Ready.KVDirs {
		if _, err := os.Stat(dir); err == nil {
			errs = append(errs, fmt.Errorf("stack: shared memory %s is still there", dir))
		}
	}
	return errors.Join(errs...)
}

func (s *Stack) embedded() bool {
	for i, a := range s.cmd.Args {
		if a == "--nats" && i+1 < len(s.cmd.Args) {
			return !bytes.Contains([]byte(s.cmd.Args[i+1]), []byte("://"))
		}
	}
	return true
}

// alive finds processes of this stack: those it told about, and, where /proc
// exists, all whose command line names its folder.
func (s *Stack) alive() map[int]string {
	out := map[int]string{}
	for _, e := range s.events.list() {
		ps := e.Processes
		if e.Event == "restarted" {
			ps = []Process{e.Process}
		}
		for _, p := range ps {
			if p.PID > 0 && syscall.Kill(p.PID, 0) == nil && s.ours(p.PID) {
				out[p.PID] = p.ID
			}
		}
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(d)))
		if err == nil && pid != os.Getpid() && s.ours(pid) {
			out[pid] = "unknown child"
		}
	}
	return out
}

// ours guards against process ids that were given away again.
func (s *Stack) ours(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return errors.Is(err, os.ErrNotExist) && !hasProc()
	}
	return bytes.Contains(line, []byte("\x00--dir\x00"+s.dir+"\x00"))
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/cmdline")
	return err == nil
}
