package hostmem

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary runs itself again as a daemon or client process, so that kill
// -9 and SIGSTOP hit real processes. A child obeys lines on its standard input
// and answers each with one line.
const (
	envRole   = "WEIR_TEST_ROLE"
	envDir    = "WEIR_TEST_DIR"
	envWriter = "WEIR_TEST_WRITER"
	envBytes  = "WEIR_TEST_BYTES"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "daemon":
		os.Exit(childDaemon())
	case "client":
		os.Exit(childClient())
	default:
		os.Exit(m.Run())
	}
}

func childDaemon() int {
	size, _ := strconv.ParseInt(os.Getenv(envBytes), 10, 64)
	d, err := NewDaemon(Config{Dir: os.Getenv(envDir), Bytes: size})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent closes it
	_ = d.Close()
	return 0
}

func childClient() int {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := Attach(ctx, Options{
		Dir: os.Getenv(envDir), Writer: os.Getenv(envWriter), Pool: testPool, BlockBytes: testBlock, Wait: 5 * time.Second,
	})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	defer c.Close()
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	var held []Slot
	for in.Scan() {
		var cmd, seed string
		var n int
		_, _ = fmt.Sscan(in.Text(), &cmd, &seed, &n)
		switch cmd {
		case "put": // seal n blocks of a chain
			err = nil
			for _, b := range testChain(seed, n) {
				if _, err = put(c, b); err != nil {
					break
				}
			}
			fmt.Println("put", err)
		case "half": // reserve n slots and write a half of each
			held, err = c.Reserve(context.Background(), n)
			for _, s := range held {
				pattern(s.Data()[:testBlock/2], testChain(seed, 1)[0].Key)
			}
			fmt.Println("half", err)
		case "finish": // write and seal what is held
			err = nil
			for i, b := range testChain(seed, len(held)) {
				pattern(held[i].Data(), b.Key)
				if _, err = c.Seal(held[i], b); err != nil {
					break
				}
			}
			fmt.Println("finish", err)
		case "lease":
			fmt.Println("lease", len(c.Lease(keysOf(testChain(seed, n)))))
		case "churn": // n random operations over a few chains
			fmt.Println("churn", churn(c, seed, n))
		default:
			fmt.Println("unknown", cmd)
		}
	}
	return 0
}

// churn puts, leases, reads and re-reads stale references at random. It returns
// how many blocks were read and whether any had other bytes than were sealed.
func churn(c *Client, seed string, n int) string {
	h := uint64(len(seed))
	for _, r := range seed {
		h = h*31 + uint64(r)
	}
	rng := rand.New(rand.NewPCG(h, 1))
	var stale []Ref
	read, buf := 0, make([]byte, testBlock)
	for range n {
		chain := testChain(fmt.Sprint("chain", rng.IntN(40)), 12)
		k := c.Match(keysOf(chain))
		for _, b := range chain[k:min(len(chain), k+3)] {
			if _, err := put(c, b); err != nil {
				break // full or away: not stored
			}
		}
		refs := c.Lease(keysOf(chain))
		for _, r := range append(stale, refs...) {
			good := hasPattern(c.Data(r), r.Key)
			if c.Valid(r) && !good {
				return fmt.Sprintf("wrong bytes in block %s", r.Key.Short())
			}
			if c.Copy(r, buf) && !hasPattern(buf, r.Key) {
				return fmt.Sprintf("wrong copy of block %s", r.Key.Short())
			}
			read++
		}
		c.Release(refs)
		stale = refs
	}
	return fmt.Sprintf("ok %d", read)
}

// child is a process under the test's control.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(t testing.TB, role, dir, writer string, size int64) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envRole+"="+role, envDir+"="+dir, envWriter+"="+writer, envBytes+"="+strconv.FormatInt(size, 10))
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
	c := &child{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(c.kill)
	if got := c.line(); got != "ready" {
		t.Fatalf("child says %q", got)
	}
	return c
}

func (c *child) line() string {
	c.t.Helper()
	s, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("child ended: %v", err)
	}
	return strings.TrimSpace(s)
}

func (c *child) tell(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

// ask sends a command and checks the answer.
func (c *child) ask(want, format string, args ...any) {
	c.t.Helper()
	c.tell(format, args...)
	if got := c.line(); got != want {
		c.t.Fatalf("child answers %q to %q, want %q", got, fmt.Sprintf(format, args...), want)
	}
}

// kill ends the process as kill -9 does and waits until it is gone.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}
