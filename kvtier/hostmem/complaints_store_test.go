package hostmem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// 32 goroutines store one key with different fills; one fails in the middle.
func manyFillsOfOneKey(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 2<<20)
	c := attach(t, dir, "w")
	b := testChain("a", 1)[0]
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			slots, err := c.Reserve(t.Context(), 1)
			if err != nil {
				t.Error(err)
				return
			}
			if g == 7 {
				copy(slots[0].Data(), bytes.Repeat([]byte{byte(g)}, testBlock/2))
				c.Abandon(slots)
				return
			}
			copy(slots[0].Data(), bytes.Repeat([]byte{byte(g)}, testBlock))
			if _, err := c.Seal(slots[0], b); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	whole := func(c *Client) byte {
		refs := c.Lease([]kvtier.Key{b.Key})
		defer c.Release(refs)
		buf := make([]byte, testBlock)
		if len(refs) != 1 || !c.Copy(refs[0], buf) || bytes.Count(buf, buf[:1]) != testBlock || buf[0] == 7 {
			t.Fatalf("%d blocks, of %d and others", len(refs), buf[0])
		}
		return buf[0]
	}
	first := whole(c)
	until(t, "one block is left", func() bool { s := stats(t, d); return s.Sealed == 1 && s.Duplicates == 30 })
	_ = d.Close()
	startDaemon(t, dir, 2<<20)
	if again := whole(attach(t, dir, "r")); again != first {
		t.Errorf("after the restart the bytes are those of writer %d, before of %d", again, first)
	}
}

func refusedPartOfABatchIsAbsent(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Cache = -1 })
	slots, err := c.Reserve(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	blocks := testChain("a", 8)
	for i, s := range slots {
		pattern(s.Data(), blocks[i].Key)
		b := blocks[i]
		if i == 2 || i == 5 {
			b.Index = -1 // refused
		}
		if _, err := c.Seal(s, b); (err != nil) != (i == 2 || i == 5) {
			t.Fatalf("block %d: %v", i, err)
		}
	}
	c.Abandon([]Slot{slots[2], slots[5]})
	for i, b := range blocks {
		if found := c.Match([]kvtier.Key{b.Key}) == 1; found == (i == 2 || i == 5) {
			t.Errorf("block %d: found %v", i, found)
		}
	}
	until(t, "6 blocks are in use", func() bool { s := stats(t, d); return s.Sealed == 6 && s.Reserved == 0 && s.Free == s.Total-6 })
}

// Puts, reads and evictions over four times the capacity, with random errors: what is
// in use and how often is hit stays the same.
func cyclesLeakNothing(t *testing.T) {
	cycles := 100_000
	if testing.Short() {
		cycles = 10_000
	}
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	rng := rand.New(rand.NewPCG(1, 1))
	var hits [2]int
	buf := make([]byte, testBlock)
	for i := range cycles {
		b := testChain(fmt.Sprint("k", rng.IntN(4*c.Capacity())), 1)[0]
		if refs := c.Lease([]kvtier.Key{b.Key}); len(refs) == 1 {
			hits[2*i/cycles]++
			c.Release(refs)
			continue
		}
		slots, err := c.Reserve(t.Context(), 1)
		switch {
		case err != nil:
			t.Fatal(err)
		case rng.IntN(10) == 0: // the write fails
			c.Abandon(slots)
		default:
			if _, err := c.SealFrom(slots[0], b, buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	if hits[0] == 0 || hits[1] < hits[0]*9/10 {
		t.Errorf("%d hits in the first half, %d in the second", hits[0], hits[1])
	}
	until(t, "nothing is lost", func() bool { s := stats(t, d); return s.Free+s.Sealed+s.Reserved == s.Total && s.Reserved <= 1 })
	checkTier(t, d)
}

// nobody reads.
type nobody struct{}

func (nobody) Leased(kvtier.SlotID) bool   { return false }
func (nobody) LastUse(kvtier.SlotID) int64 { return 0 }

func evictionTimeIsFlat(t *testing.T) {
	perEviction := func(n int) time.Duration {
		s := kvtier.NewSlots(n)
		seal := func(i int) {
			if _, _, err := s.Seal(0, s.Reserve(0, 1, nil)[0], kvtier.Block{Key: indexKey(i)}, int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			seal(i)
		}
		const evictions = 1000
		times := make([]time.Duration, 0, evictions)
		for i := range evictions {
			begin := time.Now()
			id, ok := s.Victim(nobody{}, int64(n+i))
			if _, err := s.Evict(id); !ok || err != nil {
				t.Fatal(err)
			}
			times = append(times, time.Since(begin))
			seal(n + i)
		}
		slices.Sort(times)
		return times[evictions/2]
	}
	large := 1_000_000
	if testing.Short() {
		large = 100_000
	}
	few, many := perEviction(10_000), perEviction(large)
	if many > 20*few+5*time.Microsecond { // more would be a scan
		t.Errorf("an eviction takes %v of %d blocks and %v of 10,000", many, large, few)
	}
}

func blockAndDescriptionGoTogether(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	b := testChain("a", 1)[0]
	mustPut(t, c, b)
	until(t, "known", func() bool { return stats(t, d).Sealed == 1 })
	if _, ok := c.Block(b.Key); !ok {
		t.Fatal("a stored block has no description")
	}
	if _, err := d.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Block(b.Key); ok || c.Match([]kvtier.Key{b.Key}) != 0 {
		t.Error("a part of an evicted block is left")
	}
}

// A memory of 64 blocks' size takes four times as many; the folder never outgrows it.
func budgetIsKept(t *testing.T) {
	dir := shortDir(t)
	const budget = 4 << 20
	startDaemon(t, dir, budget)
	c := attach(t, dir, "w", func(o *Options) { o.BlockBytes = 64 << 10 })
	for i := range 4 * 64 {
		slots, err := c.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Seal(slots[0], testChain(fmt.Sprint(i), 1)[0]); err != nil {
			t.Fatal(err)
		}
		if n := allocated(t, dir); n > budget+64<<10 {
			t.Fatalf("%d bytes in the folder after %d blocks", n, i)
		}
	}
}

// 64 goroutines store one key while others look it up and read.
func foundMeansWhole(t *testing.T) {
	dir := shortDir(t)
	startDaemon(t, dir, 4<<20)
	c, r := attach(t, dir, "w"), attach(t, dir, "r")
	for round := range 20 {
		b := testChain(fmt.Sprint(round), 1)[0]
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if _, err := put(c, b); err != nil {
					t.Error(err)
				}
			})
		}
		for range 4 {
			wg.Go(func() {
				buf := make([]byte, testBlock)
				for range 50 {
					refs := r.Lease([]kvtier.Key{b.Key})
					if len(refs) == 1 && (!r.Copy(refs[0], buf) || !hasPattern(buf, b.Key)) {
						t.Error("a key is found and its value is not whole")
					}
					r.Release(refs)
				}
			})
		}
		wg.Wait()
		if _, n := load(r, []kvtier.Block{b}); n != 1 {
			t.Fatalf("round %d: not found in the end", round)
		}
	}
}

// Every block is looked up again and again while the memory is filled twice over.
func probesDoNotStarveEviction(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	w, r := attach(t, dir, "w"), attach(t, dir, "r")
	n := w.Capacity()
	var all []kvtier.Key
	for i := range 3 * n {
		all = append(all, testChain(fmt.Sprint(i), 1)[0].Key)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			for i := range all {
				r.Match(all[i : i+1])
			}
		}
	})
	for i := range 3 * n {
		mustPut(t, w, testChain(fmt.Sprint(i), 1)...)
	}
	stop()
	wg.Wait()
	if s := stats(t, d); s.Evictions < uint64(n) || s.Leased != 0 {
		t.Errorf("%d evictions, %d leased", s.Evictions, s.Leased)
	}
}

func sizesDoNotMix(t *testing.T) {
	dir := shortDir(t)
	startDaemonWith(t, Config{Dir: dir, Bytes: 4 << 20, PoolBytes: 2 << 20})
	b := testChain("a", 1)[0]
	var clients []*Client
	for i, size := range []int64{testBlock, 3 * testBlock} { // two ranks, one folder, one hash
		c := attach(t, dir, fmt.Sprint("rank", i), func(o *Options) { o.BlockBytes = size })
		slots, err := c.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		pattern(slots[0].Data(), kvtier.Key{byte(i)})
		if dup, err := c.Seal(slots[0], b); dup || err != nil {
			t.Fatalf("rank %d: %v, %v", i, dup, err)
		}
		clients = append(clients, c)
	}
	for i, c := range clients {
		buf := make([]byte, c.BlockBytes())
		refs := c.Lease([]kvtier.Key{b.Key})
		if len(refs) != 1 || !c.Copy(refs[0], buf) || !hasPattern(buf, kvtier.Key{byte(i)}) {
			t.Errorf("rank %d reads other bytes than it wrote", i)
		}
	}
	if files, err := filepath.Glob(filepath.Join(dir, "pool-*.kv")); len(files) != 2 || err != nil {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// A block's KV is complete and its indexer part is not: nobody finds it, and a crash
// between the two leaves nothing.
func halfABlockIsAbsent(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	w := startChild(t, "client", dir, "w", 0)
	r := attach(t, dir, "r")
	w.ask("half <nil>", "half a 1")
	if n := r.Match(keysOf(testChain("a", 1))); n != 0 {
		t.Error("half a block is found")
	}
	w.ask("finish <nil>", "finish a")
	if _, n := load(r, testChain("a", 1)); n != 1 {
		t.Error("the whole block is not found")
	}
	w.ask("half <nil>", "half b 1")
	w.kill()
	until(t, "its slot is free", func() bool { return stats(t, d).Reserved == 0 })
	if n := r.Match(keysOf(testChain("b", 1))); n != 0 {
		t.Error("half a block of a dead writer is found")
	}
}

// 1,000 sessions are left idle; what comes then finds room, and the process does not grow.
func idleSessionsGiveWay(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for i := range 500 {
		mustPut(t, c, testChain(fmt.Sprint("s", i), 2)...)
	}
	before := heap()
	for i := range 500 {
		mustPut(t, c, testChain(fmt.Sprint("t", i), 2)...)
	}
	chain := testChain("now", 100)
	mustPut(t, c, chain...)
	if n := c.Match(keysOf(chain)); n != 100 {
		t.Errorf("%d of the last session's 100 blocks are there", n)
	}
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("the process grew by %d bytes", grown)
	}
	checkTier(t, d)
}

// Refusals are errors, 512 batches at once break nothing, and a client outlives the
// daemon that it was connected to.
func failuresAreTold(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Wait = 20 * time.Second })
	var wg sync.WaitGroup
	for g := range 512 {
		wg.Go(func() {
			blocks := testChain(fmt.Sprint("g", g), 4)
			for _, b := range blocks {
				if _, err := put(c, b); err != nil && !errors.Is(err, ErrFull) {
					t.Errorf("put: %v", err)
				}
			}
		})
	}
	wg.Wait()
	slots, err := c.Reserve(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c.Abandon(slots) // the write failed
	b := testChain("late", 1)[0]
	if _, err := c.Seal(slots[0], b); !errors.Is(err, ErrLost) || c.Match([]kvtier.Key{b.Key}) != 0 {
		t.Errorf("sealing what was given back: %v", err)
	}
	c.Abandon(slots) // twice is once: nobody else gets the slot together with its next owner
	two, err := c.Reserve(t.Context(), 2)
	if err != nil || two[0].id == two[1].id {
		t.Fatalf("%v: slots %v", err, two)
	}
	c.Abandon(two)
	_ = d.Close()
	until(t, "the client sees it", func() bool { return !c.Connected() })
	d = startDaemon(t, dir, 1<<20)
	until(t, "it is connected again", c.Connected)
	mustPut(t, c, testChain("after", 3)...)
	checkTier(t, d)
}

func stoppedDaemonUnderLoad(t *testing.T) {
	pause := 5 * time.Second
	if testing.Short() {
		pause = 500 * time.Millisecond
	}
	dir := shortDir(t)
	d := startChild(t, "daemon", dir, "", 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Wait, o.Cache = 50*time.Millisecond, -1 })
	warm := testChain("warm", 20)
	storePatiently(t, dir, warm...)
	d.signal(syscall.SIGSTOP)
	down, buf := 0, make([]byte, testBlock)
	for i, end := 0, time.Now().Add(pause); time.Now().Before(end); i++ {
		refs := c.Lease(keysOf(warm))
		if len(refs) != 20 || !c.Copy(refs[i%20], buf) {
			t.Fatal("reading needs the daemon")
		}
		c.Release(refs)
		begin := time.Now()
		if _, err := put(c, testChain(fmt.Sprint(i), 1)[0]); err != nil {
			down++
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Fatalf("storing took %v while the daemon was stopped", took)
		}
	}
	d.signal(syscall.SIGCONT)
	if down == 0 {
		t.Error("nothing was refused: the test shows nothing")
	}
	until(t, "it serves again", func() bool { _, err := put(c, testChain("again", 1)[0]); return err == nil })
}
