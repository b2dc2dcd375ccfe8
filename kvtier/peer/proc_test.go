package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier/hostmem"
)

// The test binary runs itself again as a node's process, daemon and server together,
// so that kill -9 and SIGSTOP hit a real one.
const (
	envRole = "WEIR_TEST_ROLE"
	envDir  = "WEIR_TEST_DIR"
	envAddr = "WEIR_TEST_ADDR"
)

func TestMain(m *testing.M) {
	if os.Getenv(envRole) == "node" {
		os.Exit(childNode())
	}
	os.Exit(m.Run())
}

// childNode serves until its standard input ends.
func childNode() int {
	dir := os.Getenv(envDir)
	d, err := hostmem.NewDaemon(hostmem.Config{Dir: dir, Bytes: 64 << 20})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	s, err := Serve(ServerConfig{Dir: dir, Addr: os.Getenv(envAddr)})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println(s.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = s.Close()
	_ = d.Close()
	return 0
}

// process is a node in a process of its own.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	addr string
}

func startProcess(t testing.TB, dir, addr string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envRole+"=node", envDir+"="+dir, envAddr+"="+addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, in: in}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if p.addr = strings.TrimSpace(line); err != nil || strings.HasPrefix(line, "error") {
		t.Fatalf("the node says %q, %v", line, err)
	}
	return p
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	if s == syscall.SIGSTOP { // until it has stopped indeed
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(p.cmd.Process.Pid, &ws, syscall.WUNTRACED, nil); err != nil || !ws.Stopped() {
			p.t.Fatal("not stopped: ", ws, err)
		}
	}
}

// A node is killed while it sends. What came is right and counted, the rest is lost
// soon, and the node that starts again is used again: Mooncake #4042.
func TestKilledPeer(t *testing.T) {
	noLeak(t)
	dir := shortDir(t)
	far := startProcess(t, dir, "")
	chain := testChain("a", 400)
	put(t, attach(t, dir, "w", testBlock), chain...)
	near := newNode(t, 64<<20)
	p := newProxy(t, far.addr)
	p.rate(2 << 20) // 13 s for all
	c := newClient(t, near.mem, func(o *Options) { o.Window, o.BackoffMax = 16*testBlock, 200*time.Millisecond })
	var res Result
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { res, err = c.Fetch(t.Context(), p.addr(), keysOf(chain)) })
	until(t, "some blocks have come", func() bool { return near.mem.Match(keysOf(chain)) > 10 })
	begin := time.Now()
	far.kill()
	wg.Wait()
	if took := time.Since(begin); took > 8*time.Second { // a silent one costs 10 s
		t.Errorf("the death of a node is noticed after %s", took)
	}
	checkResult(t, res)
	if err == nil || res.Lost == 0 || res.Brought < 10 {
		t.Errorf("%+v, %v", res, err)
	}
	if n := checkBlocks(t, near.mem, chain); n != res.Brought {
		t.Errorf("%d blocks are here, %d came", n, res.Brought)
	}
	near.settled(t)
	startProcess(t, dir, far.addr)
	p.rate(0)
	until(t, "the rest has come", func() bool {
		_, err = c.Fetch(t.Context(), p.addr(), keysOf(chain))
		return near.mem.Match(keysOf(chain)) == 400
	})
	if err != nil {
		t.Error(err)
	}
	checkBlocks(t, near.mem, chain)
	near.settled(t)
}

// Mooncake #2253: a node that is stopped costs a bounded time once, then none, and is
// used again when it goes on.
func TestStoppedPeer(t *testing.T) {
	noLeak(t)
	dir := shortDir(t)
	far := startProcess(t, dir, "")
	chain := testChain("a", 50)
	put(t, attach(t, dir, "w", testBlock), chain...)
	near := newNode(t, 64<<20)
	const patience = time.Second
	c := newClient(t, near.mem, func(o *Options) {
		o.ReadTimeout, o.DialTimeout, o.BackoffMin, o.BackoffMax = patience, patience, 5*time.Second, 5*time.Second
	})
	if res, err := c.Fetch(t.Context(), far.addr, keysOf(chain[:10])); err != nil || res.Brought != 10 {
		t.Fatalf("%+v, %v", res, err)
	}
	far.signal(syscall.SIGSTOP)
	begin := time.Now()
	res, err := c.Fetch(t.Context(), far.addr, keysOf(chain))
	first := time.Since(begin)
	checkResult(t, res)
	if err == nil || res.Present != 10 || res.Lost != 40 || first > 20*patience {
		t.Errorf("a stopped node: %+v, %v, after %s", res, err, first)
	}
	if !errors.Is(err, ErrStalled) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
	begin = time.Now()
	if _, err := c.Fetch(t.Context(), far.addr, keysOf(chain)); !errors.Is(err, ErrAway) {
		t.Errorf("asked again: %v after %s", err, time.Since(begin))
	}
	far.signal(syscall.SIGCONT)
	until(t, "it is used again", func() bool {
		_, _ = c.Fetch(t.Context(), far.addr, keysOf(chain))
		return near.mem.Match(keysOf(chain)) == 50
	})
	checkBlocks(t, near.mem, chain)
	near.settled(t)
}
