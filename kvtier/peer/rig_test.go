package peer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

// Fixtures shared by this package's tests: nodes with a daemon and a memory each.

const (
	testPool  = "test-pool"
	testBlock = 64 << 10
)

func shortDir(t testing.TB) string {
	t.Helper()
	base := ""
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "weirt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// node is a host: its folder, its daemon and one executor's view.
type node struct {
	dir string
	d   *hostmem.Daemon
	mem *hostmem.Client
}

func newNode(t testing.TB, size int64) node {
	return newNodeOf(t, size, testBlock)
}

func newNodeOf(t testing.TB, size, block int64) node {
	t.Helper()
	dir := shortDir(t)
	d, err := hostmem.NewDaemon(hostmem.Config{Dir: dir, Bytes: size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return node{dir: dir, d: d, mem: attach(t, dir, "w", block)}
}

func attach(t testing.TB, dir, writer string, block int64) *hostmem.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := hostmem.Attach(ctx, hostmem.Options{Dir: dir, Writer: writer, Pool: testPool, BlockBytes: block, Wait: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newServer(t testing.TB, dir string, change ...func(*ServerConfig)) *Server {
	t.Helper()
	cfg := ServerConfig{Dir: dir}
	for _, f := range change {
		f(&cfg)
	}
	s, err := Serve(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newClient(t testing.TB, mem *hostmem.Client, change ...func(*Options)) *Client {
	t.Helper()
	// A busy machine is no stuck node.
	o := Options{DialTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, Timeout: 30 * time.Second}
	for _, f := range change {
		f(&o)
	}
	c := NewClient(mem, o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// testChain names n blocks of a chain.
func testChain(seed string, n int) []kvtier.Block {
	parent := kvtier.Key(sha256.Sum256([]byte(seed)))
	out := make([]kvtier.Block, n)
	for i := range out {
		key, err := kvtier.Chain(parent, i, []int32{int32(i)}, nil)
		if err != nil {
			panic(err)
		}
		out[i] = kvtier.Block{Key: key, Parent: parent, Index: i, Origin: kvtier.Origin(i % 2)}
		parent = key
	}
	return out
}

func keysOf(blocks []kvtier.Block) []kvtier.Key {
	out := make([]kvtier.Key, len(blocks))
	for i, b := range blocks {
		out[i] = b.Key
	}
	return out
}

// pattern fills a block with bytes that follow from its key.
func pattern(dst []byte, k kvtier.Key) {
	seed := binary.LittleEndian.Uint64(k[:])
	for i := 0; i+8 <= len(dst); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], seed+uint64(i)*0x9e3779b97f4a7c15)
	}
}

func hasPattern(data []byte, k kvtier.Key) bool {
	want := make([]byte, len(data))
	pattern(want, k)
	return bytes.Equal(data, want)
}

func put(t testing.TB, c *hostmem.Client, blocks ...kvtier.Block) {
	t.Helper()
	for _, b := range blocks {
		slots, err := c.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		pattern(slots[0].Data(), b.Key)
		if _, err := c.Seal(slots[0], b); err != nil {
			t.Fatal(err)
		}
	}
}

// same checks that those of blocks that are in c are whole, described as they were
// sealed and hold the right bytes, and returns how many there are.
func checkBlocks(t testing.TB, c *hostmem.Client, blocks []kvtier.Block) (found int) {
	t.Helper()
	buf := make([]byte, c.BlockBytes())
	for _, b := range blocks {
		refs := c.Lease([]kvtier.Key{b.Key})
		if len(refs) == 0 {
			continue
		}
		found++
		if got, _, ok := c.Describe(refs[0]); !ok || got != b {
			t.Errorf("block %d is %+v, sealed was %+v", b.Index, got, b)
		}
		if !c.Copy(refs[0], buf) || !hasPattern(buf, b.Key) {
			t.Errorf("block %d has other bytes than were sealed", b.Index)
		}
		c.Release(refs)
	}
	return found
}

// checkResult: every block that was asked for is counted once.
func checkResult(t testing.TB, r Result) {
	t.Helper()
	if sum := r.Present + r.Brought + r.Duplicate + r.Joined + r.Missing + r.Corrupt + r.Full + r.Lost; sum != r.Asked {
		t.Errorf("%d blocks are counted of %d: %+v", sum, r.Asked, r)
	}
}

// settled waits until no slot is reserved but not sealed by a transfer, and checks the
// memory.
func (n node) settled(t testing.TB) {
	t.Helper()
	until(t, "reservations are given back", func() bool {
		s, err := n.d.Stats()
		if err != nil || len(s) != 1 {
			t.Fatal(len(s), err)
		}
		return s[0].Free+s[0].Reserved+s[0].Sealed == s[0].Total && s[0].Reserved <= 16 && s[0].Leased == 0
	})
	if err := n.d.CheckIntegrity(); err != nil {
		t.Error(err)
	}
}

// empty clears the memory, also of blocks that were sealed a moment ago, of which the
// daemon has not heard yet.
func (n node) empty(t testing.TB, blocks []kvtier.Block) {
	t.Helper()
	until(t, "the memory is empty", func() bool {
		if _, err := n.d.Clear(); err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(blocks, func(b kvtier.Block) bool { return n.mem.Match([]kvtier.Key{b.Key}) > 0 })
	})
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timed out until ", what)
		}
	}
}

// noLeak fails the test when goroutines of this package are left behind at its end. It
// must be called before anything is started.
func noLeak(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		left := ""
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			buf := make([]byte, 1<<20)
			left = ""
			for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")[1:] {
				if strings.Contains(g, "kvtier/peer.") && !strings.Contains(g, "testing.tRunner(") {
					left += g + "\n\n"
				}
			}
			if left == "" {
				return
			}
		}
		t.Errorf("goroutines are left:\n%s", left)
	})
}
