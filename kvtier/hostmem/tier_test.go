package hostmem

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// Test fixtures shared by this package's tests.

const (
	testPool  = "test-pool"
	testBlock = 4096
)

// shortDir is a folder on tmpfs when there is one, with a path that fits a socket.
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

func startDaemon(t testing.TB, dir string, size int64) *Daemon {
	t.Helper()
	d, err := NewDaemon(Config{Dir: dir, Bytes: size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func attach(t testing.TB, dir, writer string, opts ...func(*Options)) *Client {
	t.Helper()
	o := Options{Dir: dir, Writer: writer, Pool: testPool, BlockBytes: testBlock, Wait: 10 * time.Second}
	for _, f := range opts {
		f(&o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := Attach(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
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
		out[i] = kvtier.Block{Key: key, Parent: parent, Index: i}
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

// pattern fills dst with bytes that only this key has.
func pattern(dst []byte, key kvtier.Key) {
	seed := sha256.Sum256(key[:])
	for i := 0; i+8 <= len(dst); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], binary.LittleEndian.Uint64(seed[(i%32):])+uint64(i))
	}
}

func hasPattern(data []byte, key kvtier.Key) bool {
	want := make([]byte, len(data))
	pattern(want, key)
	return bytes.Equal(data, want)
}

// put stores one block; it returns the error of Reserve or Seal.
func put(c *Client, b kvtier.Block) (bool, error) {
	slots, err := c.Reserve(context.Background(), 1)
	if err != nil {
		return false, err
	}
	pattern(slots[0].Data(), b.Key)
	return c.Seal(slots[0], b)
}

func mustPut(t testing.TB, c *Client, blocks ...kvtier.Block) {
	t.Helper()
	for _, b := range blocks {
		if _, err := put(c, b); err != nil {
			t.Fatalf("block %d: %v", b.Index, err)
		}
	}
}

// storePatiently stores blocks through a client of its own, for tests whose client
// gives up soon: a busy machine may take longer than that for one reservation.
func storePatiently(t testing.TB, dir string, blocks ...kvtier.Block) {
	t.Helper()
	c := attach(t, dir, "patient", func(o *Options) { o.Cache = -1 })
	mustPut(t, c, blocks...)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// until waits for a condition that another goroutine or process brings about.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
		<-tick.C
	}
}

func stats(t testing.TB, d *Daemon) PoolStats {
	t.Helper()
	s, err := d.Stats()
	if err != nil || len(s) != 1 {
		t.Fatalf("stats: %v, %v", s, err)
	}
	return s[0]
}

func checkTier(t testing.TB, d *Daemon) {
	t.Helper()
	if err := d.CheckIntegrity(); err != nil {
		t.Fatal(err)
	}
}

// TestCloseWhileAsked: whoever asks while the daemon ends gets an answer or ErrClosed, and
// nothing is written behind it any more (the race detector looks).
func TestCloseWhileAsked(t *testing.T) {
	dir := shortDir(t)
	for range 20 {
		d := startDaemon(t, dir, 1<<20)
		c := attach(t, dir, "w")
		mustPut(t, c, testChain("a", 20)...)
		var wg sync.WaitGroup
		for _, ask := range []func() error{
			func() error { _, err := d.Stats(); return err },
			func() error { _, err := d.Snapshot(); return err },
			func() error { _, err := d.Erase([]kvtier.Key{{1}}); return err },
			func() error { _, err := d.Retention(); return err },
		} {
			wg.Go(func() {
				var err error
				for err == nil {
					err = ask()
				}
				if !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		_ = d.Close()
		wg.Wait()
		_ = c.Close()
	}
}

func TestBlockIsReadAsSealed(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 2<<20)
	w, r := attach(t, dir, "prefill-0"), attach(t, dir, "decode-0")
	blocks := testChain("a", 5)
	blocks[3].Origin = kvtier.OriginDecode
	mustPut(t, w, blocks...)

	keys := append(keysOf(blocks), testChain("b", 1)[0].Key)
	if n := r.Match(keys); n != 5 {
		t.Fatalf("matched %d blocks, want 5", n)
	}
	refs := r.Lease(keys)
	if len(refs) != 5 {
		t.Fatalf("leased %d blocks, want 5", len(refs))
	}
	for i, ref := range refs {
		dst := make([]byte, testBlock)
		if !hasPattern(r.Data(ref), ref.Key) || !r.Valid(ref) || !r.Verify(ref) || !r.Copy(ref, dst) || !hasPattern(dst, ref.Key) {
			t.Fatalf("block %d is not what was sealed", i)
		}
		if b, ok := r.Block(ref.Key); !ok || b != blocks[i] {
			t.Fatalf("block %d is described as %+v, want %+v", i, b, blocks[i])
		}
	}
	if p, index, ok := r.Parent(blocks[4].Key); !ok || p != blocks[3].Key || index != 4 {
		t.Fatalf("parent of block 4: %s, %d, %v", p.Short(), index, ok)
	}
	until(t, "the daemon knows all blocks", func() bool { return stats(t, d).Sealed == 5 })
	if s := stats(t, d); s.Leased != 5 || s.Clients != 2 {
		t.Fatalf("%d leased, %d clients, want 5 and 2", s.Leased, s.Clients)
	}
	r.Release(refs)
	if s := stats(t, d); s.Leased != 0 {
		t.Fatalf("%d leased after release", s.Leased)
	}
	checkTier(t, d)
}

func TestFullPoolRefusesThenEvictsLeafFirst(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	now := int64(0)
	clock := func(o *Options) {
		o.Now = func() int64 { now++; return now }
		o.Wait, o.Cache = -1, -1
	}
	c := attach(t, dir, "w", clock)
	n := c.Capacity()
	blocks := testChain("full", n)
	mustPut(t, c, blocks...)
	until(t, "all are known", func() bool { return stats(t, d).Sealed == n })

	refs := c.Lease(keysOf(blocks))
	if len(refs) != n {
		t.Fatalf("leased %d of %d", len(refs), n)
	}
	if _, err := c.Reserve(t.Context(), 1); !errors.Is(err, ErrFull) {
		t.Fatalf("reserve in a pool whose blocks are all leased: %v, want ErrFull", err)
	}
	other := testChain("other", 3)
	c.Release(refs)
	mustPut(t, c, other...)
	if got := c.Match(keysOf(blocks)); got != n-3 {
		t.Fatalf("%d blocks of the old chain are left, want %d: the leaves go first", got, n-3)
	}
	if got := c.Match(keysOf(other)); got != 3 {
		t.Fatalf("%d of 3 later blocks are there", got)
	}
	until(t, "all are known", func() bool { return stats(t, d).Sealed == n })
	checkTier(t, d)
}
