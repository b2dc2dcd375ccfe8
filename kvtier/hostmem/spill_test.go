package hostmem

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/disk"
	"github.com/weir-dev/weir/schemas"
)

// spillDaemon runs a daemon with a disk below it.
func spillDaemon(t testing.TB, dir, spill string, mem, size int64) *Daemon {
	t.Helper()
	d, err := NewDaemon(Config{Dir: dir, Bytes: mem, Disk: spill, DiskBytes: size, DiskRate: 8 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func diskStats(t testing.TB, d *Daemon) DiskStats {
	t.Helper()
	st, ok := d.Disk()
	if !ok {
		t.Fatal("no disk")
	}
	return st
}

// settled waits until everything that should be on disk is there.
func settled(t testing.TB, d *Daemon) {
	t.Helper()
	until(t, "the next victims are on disk", func() (done bool) {
		_ = d.call(func() { done = !d.spill.due && len(d.spill.waiting) == 0 })
		return done
	})
}

// fill stores chains until so many blocks are stored, waiting for the disk after each.
func fill(t testing.TB, d *Daemon, c *Client, seed string, chains, length int) (out [][]kvtier.Block) {
	t.Helper()
	for i := range chains {
		blocks := testChain(fmt.Sprint(seed, i), length)
		for part := range slices.Chunk(blocks, 16) { // less than the window
			mustPut(t, c, part...)
			until(t, "the daemon knows all", func() bool { return stats(t, d).Reserved <= d.pools[0].cacheSlots() })
			settled(t, d)
		}
		out = append(out, blocks)
	}
	return out
}

// What memory gives up is on disk, comes back with its own bytes, and a restart of the
// daemon finds it. Blocks that left say where they are.
func TestEvictedBlocksComeBackFromDisk(t *testing.T) {
	dir, spill := shortDir(t), t.TempDir()
	d := spillDaemon(t, dir, spill, 1<<20, 16<<20)
	c := attach(t, dir, "w")
	moved := map[kvtier.Key]bool{}
	chains := fill(t, d, c, "s", 12, 100) // five times what memory holds
	if st := diskStats(t, d); st.Late > 0 || st.Writes < 900 || st.Off != "" {
		t.Errorf("%+v", st)
	}
	first := chains[0]
	for limit := time.After(20 * time.Second); slices.ContainsFunc(first, func(b kvtier.Block) bool { return !moved[b.Key] }); {
		select {
		case b := <-d.Events():
			for _, e := range b.Events {
				if e.Kind == kvtier.EventMoved {
					moved[e.Key] = true
				}
			}
		case <-limit:
			t.Fatal("of some blocks no event says that they moved to disk")
		}
	}
	if c.Match(keysOf(first)) > 0 {
		t.Fatal("the first chain is still in memory")
	}
	if g, ok := c.Why(first[99].Key); !ok || g.Rule != RuleDisk || g.AtNS == 0 {
		t.Errorf("why: %+v, %v, want on_disk", g, ok)
	}
	names, err := c.Trail(t.Context(), first[99].Key, 200)
	if err != nil || len(names) != 100 || names[0] != first[0].Key || names[99] != first[99].Key {
		t.Errorf("%d names of the chain, %v", len(names), err)
	}
	come := func(d *Daemon, c *Client, blocks []kvtier.Block) {
		t.Helper()
		until(t, "the client is connected", c.Connected)
		n, err := c.Fetch(t.Context(), keysOf(blocks))
		if err != nil || n == 0 {
			t.Fatalf("fetched %d blocks, %v", n, err)
		}
		refs := c.Lease(keysOf(blocks))
		if len(refs) != len(blocks) {
			t.Fatalf("%d of %d blocks are in memory after fetching %d", len(refs), len(blocks), n)
		}
		for i, r := range refs {
			if b, _, ok := c.Describe(r); !hasPattern(c.Data(r), r.Key) || !c.Verify(r) || !ok || b != blocks[i] {
				t.Fatalf("block %d came back as another", i)
			}
		}
		c.Release(refs)
		checkTier(t, d)
	}
	come(d, c, first)
	if n, err := c.Fetch(t.Context(), keysOf(testChain("unknown", 3))); n != 0 || err != nil {
		t.Errorf("fetched %d blocks that nobody has, %v", n, err)
	}
	// The machine starts again: memory is empty, the disk is not.
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	other := shortDir(t)
	d = spillDaemon(t, other, spill, 1<<20, 16<<20)
	c = attach(t, other, "w")
	come(d, c, chains[3])
}

// TestDiskFollowsBranches: on disk, too, the blocks of a branch that ended go first, and
// those of one that waits stay though they were used before all others.
func TestDiskFollowsBranches(t *testing.T) {
	dir, spill := shortDir(t), t.TempDir()
	d := spillDaemon(t, dir, spill, 1<<20, 4<<20)
	c := attach(t, dir, "w")
	first := fill(t, d, c, "s", 2, 100)
	waits, ends := first[0], first[1]
	d.Branch(says("waits", schemas.BranchToolWaiting, waits, 1))
	d.Branch(says("ends", schemas.BranchToolWaiting, ends, 1))
	p := d.pools[0]
	onDisk := func(blocks []kvtier.Block) (n int) {
		for _, b := range blocks {
			if d.spill.store.Has(p.pool, p.block, b.Key) {
				n++
			}
		}
		return n
	}
	mine := 2 * p.arena.slots // pushes both out of memory
	for i := 0; mine > 0; i++ {
		mine -= int64(100 * len(fill(t, d, c, fmt.Sprint("push", i), 1, 100)))
	}
	if n, m := onDisk(waits), onDisk(ends); n < 90 || m < 90 || there(c, waits)+there(c, ends) > 0 {
		t.Fatalf("%d and %d blocks on disk, %d and %d in memory", n, m, there(c, waits), there(c, ends))
	}
	before := onDisk(waits)
	d.Branch(says("ends", schemas.BranchEnded, ends, 2))
	for i := 0; onDisk(ends) > 0 && i < 50; i++ {
		fill(t, d, c, fmt.Sprint("more", i), 1, 50)
	}
	if n, m := onDisk(waits), onDisk(ends); n < before || m > 0 {
		t.Errorf("%d of %d blocks of the waiting branch are left on disk, %d of the ended one", n, before, m)
	}
	checkTier(t, d)
}

// Complaint 3 of the facts: memory for four blocks, disk for 64, eight readers. Each gets
// a block's own bytes or a miss.
func TestTinyMemoryAboveDisk(t *testing.T) {
	const block = 240 << 10
	dir, spill := shortDir(t), t.TempDir()
	d := spillDaemon(t, dir, spill, 1<<20, 68*block)
	opt := func(o *Options) { o.BlockBytes, o.Pool, o.Cache, o.Wait = block, "large", -1, time.Second }
	w := attach(t, dir, "w", opt)
	if w.Capacity() != 4 {
		t.Fatalf("memory holds %d blocks, want 4", w.Capacity())
	}
	blocks := make([]kvtier.Block, 64)
	for i := range blocks {
		blocks[i] = testChain(fmt.Sprint("own", i), 1)[0]
		mustPut(t, w, blocks[i])
		settled(t, d)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	brought, read := 0, 0
	for g := range 8 {
		c := attach(t, dir, fmt.Sprint("r", g), opt)
		until(t, "the client is connected", c.Connected)
		wg.Go(func() {
			for i := range 40 {
				k := blocks[(i*11+g*7)%len(blocks)].Key
				n, _ := c.Fetch(t.Context(), []kvtier.Key{k}) // no room is a miss
				refs := c.Lease([]kvtier.Key{k})
				ok := len(refs) == 1 && c.Verify(refs[0])
				if ok && !hasPattern(c.Data(refs[0]), k) {
					t.Errorf("reader %d got other bytes", g)
				}
				c.Release(refs)
				mu.Lock()
				if brought += n; ok {
					read++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if brought < 64 || read < 64 {
		t.Errorf("%d blocks were brought in, %d reads found their block; %+v", brought, read, diskStats(t, d))
	}
	checkTier(t, d)
}

// TestEraseForkOnDisk: all contexts of a session go from the disk, also where they meet,
// in whatever order they are named and however long they are.
func TestEraseForkOnDisk(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 0, 1}, {1, 2, 0}} {
		dir, spill := shortDir(t), t.TempDir()
		d := spillDaemon(t, dir, spill, 1<<20, 64<<20)
		c := attach(t, dir, "w")
		chains := [][]kvtier.Block{testChain("fork", trailStep+100)}
		for i, at := range []int{50, trailStep} {
			chains = append(chains, branchOf(chains[0], at, 60, int32(1000*(i+1))))
		}
		for _, b := range slices.Concat(chains[0], chains[1][50:], chains[2][trailStep:]) {
			mustPut(t, c, b)
			if b.Index%64 == 0 {
				settled(t, d)
			}
		}
		fill(t, d, c, "s", 4, 100)
		all := diskStats(t, d).Blocks
		if all < trailStep {
			t.Fatalf("%d blocks are on disk", all)
		}
		var ends []kvtier.Key
		for _, i := range order {
			ends = append(ends, chains[i][len(chains[i])-1].Key)
		}
		if _, err := d.Erase(ends); err != nil {
			t.Fatal(err)
		}
		for _, chain := range chains {
			for _, b := range chain {
				if d.spill.store.Has(testPool, testBlock, b.Key) || c.Match([]kvtier.Key{b.Key}) == 1 {
					t.Fatalf("ends in order %v: block %d is left", order, b.Index)
				}
			}
		}
		checkTier(t, d)
	}
}

// TestEraseBehindGapOnDisk: the disk holds the last blocks of a context alone, and only the
// first one of it is named, with one that is nowhere.
func TestEraseBehindGapOnDisk(t *testing.T) {
	dir, spill := shortDir(t), t.TempDir()
	d := spillDaemon(t, dir, spill, 1<<20, 16<<20)
	c := attach(t, dir, "w")
	a := testChain("gap", 12)
	mustPut(t, c, a...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 12 })
	for _, b := range a[9:11] {
		data := make([]byte, testBlock)
		pattern(data, b.Key)
		if _, err := d.spill.store.Put(disk.Item{Pool: testPool, Block: b, Data: data, CRC: checksum(data), Use: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Erase([]kvtier.Key{a[3].Key, {0xee}}); err != nil {
		t.Fatal(err)
	}
	for _, b := range a {
		if d.spill.store.Has(testPool, testBlock, b.Key) || c.Match([]kvtier.Key{b.Key}) == 1 {
			t.Errorf("block %d is left", b.Index)
		}
	}
	checkTier(t, d)
}

// branchOf is a chain of n blocks more that leaves another one behind its first at blocks.
func branchOf(chain []kvtier.Block, at, n int, token int32) []kvtier.Block {
	out := slices.Clone(chain[:at])
	for i := range n {
		out = append(out, childOf(out[len(out)-1], token+int32(i)))
	}
	return out
}

// An erased chain leaves no byte on disk, also where only the disk still had it, and does
// not come back; another chain stays.
func TestEraseReachesDisk(t *testing.T) {
	dir, spill := shortDir(t), t.TempDir()
	d := spillDaemon(t, dir, spill, 1<<20, 16<<20)
	c := attach(t, dir, "w")
	chains := fill(t, d, c, "s", 6, 100)
	victim, other := chains[1], chains[0]
	if c.Match(keysOf(victim)) > 0 || !onDisk(t, spill, victim[7].Key) || !onDisk(t, spill, other[7].Key) {
		t.Fatal("the chains are not on disk")
	}
	n, err := c.Erase(t.Context(), []kvtier.Key{victim[99].Key})
	if err != nil || n != 100 {
		t.Fatalf("erased %d, %v", n, err)
	}
	for _, b := range victim {
		if onDisk(t, spill, b.Key) || onDisk(t, dir, b.Key) {
			t.Fatalf("bytes of block %d are left", b.Index)
		}
	}
	if n, err := c.Fetch(t.Context(), keysOf(victim)); n != 0 || err != nil {
		t.Errorf("%d erased blocks came back, %v", n, err)
	}
	if n, err := c.Fetch(t.Context(), keysOf(other)); n == 0 || err != nil || c.Match(keysOf(other)) != 100 {
		t.Errorf("%d blocks of the other chain came back, %v", n, err)
	}
	// A chain of which memory has a part, erased through the daemon itself.
	last := chains[5]
	if n, err := d.Erase([]kvtier.Key{last[99].Key}); err != nil || n != 100 {
		t.Errorf("erased %d, %v", n, err)
	}
	for _, b := range last {
		if onDisk(t, spill, b.Key) || onDisk(t, dir, b.Key) {
			t.Fatalf("bytes of block %d are left", b.Index)
		}
	}
	if _, err := d.Clear(); err != nil {
		t.Fatal(err)
	}
	if st := diskStats(t, d); st.Used != 0 || st.Blocks != 0 {
		t.Errorf("after clear: %+v", st)
	}
	if n, err := c.Fetch(t.Context(), keysOf(other)); n != 0 || err != nil {
		t.Errorf("%d cleared blocks came back, %v", n, err)
	}
	if err := d.spill.store.CheckIntegrity(); err != nil {
		t.Error(err)
	}
}

// onDisk searches files for the bytes of a block.
func onDisk(t testing.TB, dir string, key kvtier.Key) (found bool) {
	t.Helper()
	want := make([]byte, testBlock)
	pattern(want, key)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		found = found || bytes.Contains(b, want[:256])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A flipped byte on disk is a miss, is reported, and the block is dropped there.
func TestCorruptBlockOnDisk(t *testing.T) {
	dir, spill := shortDir(t), t.TempDir()
	d := spillDaemon(t, dir, spill, 1<<20, 16<<20)
	c := attach(t, dir, "w")
	chains := fill(t, d, c, "s", 5, 100)
	want := make([]byte, testBlock)
	pattern(want, chains[0][5].Key)
	segs, err := filepath.Glob(filepath.Join(spill, "*.kvd"))
	if err != nil {
		t.Fatal(err)
	}
	hit := 0
	for _, path := range segs {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(b, want[:256]); i >= 0 {
			b[i+100] ^= 1
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			hit++
		}
	}
	if hit != 1 {
		t.Fatalf("the block lies in %d files", hit)
	}
	if _, err := c.Fetch(t.Context(), keysOf(chains[0])); err == nil {
		t.Error("a corrupt block was brought in")
	}
	if n := c.Match(keysOf(chains[0])); n != 5 {
		t.Errorf("%d blocks are in memory, want the 5 before it", n)
	}
	until(t, "it is dropped", func() bool { return diskStats(t, d).Corrupt == 1 })
	checkTier(t, d)
}

// A disk that cannot be used costs the disk, not the memory.
func TestUnusableDisk(t *testing.T) {
	var log bytes.Buffer
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	d, err := NewDaemon(Config{
		Dir: dir, Bytes: 1 << 20, Disk: filepath.Join(file, "spill"), DiskBytes: 1 << 20,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if _, ok := d.Disk(); ok || !bytes.Contains(log.Bytes(), []byte("KV disk cannot be used")) {
		t.Errorf("log %s", log.String())
	}
	c := attach(t, dir, "w")
	mustPut(t, c, testChain("a", 3)...)
	if n, err := c.Fetch(t.Context(), keysOf(testChain("b", 3))); n != 0 || err != nil {
		t.Errorf("fetched %d, %v", n, err)
	}
	if _, err := NewDaemon(Config{Dir: shortDir(t), Bytes: 1 << 20, Disk: "x"}); err == nil {
		t.Error("a disk of no bytes was taken")
	}
}
