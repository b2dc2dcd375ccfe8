package hostmem

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// Complaints 4 and 28 of the facts: many writers of one key give one block, whole
// whenever it is found.
func TestManyWritersOfOneKeyMakeOneBlock(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 4<<20)
	clients := []*Client{attach(t, dir, "a"), attach(t, dir, "b"), attach(t, dir, "c")}
	blocks := testChain("same", 40)
	var wg sync.WaitGroup
	var mu sync.Mutex
	firsts := map[kvtier.Key]int{}
	for i := range 12 {
		wg.Go(func() {
			c := clients[i%len(clients)]
			for _, b := range blocks {
				dup, err := put(c, b)
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				refs := c.Lease([]kvtier.Key{b.Key})
				if len(refs) != 1 || !c.Verify(refs[0]) || !hasPattern(c.Data(refs[0]), b.Key) {
					t.Errorf("block %d is found and not whole", b.Index)
				}
				c.Release(refs)
				if !dup {
					mu.Lock()
					firsts[b.Key]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for _, b := range blocks {
		if firsts[b.Key] != 1 {
			t.Errorf("block %d was sealed first by %d writers, want 1", b.Index, firsts[b.Key])
		}
	}
	until(t, "the copies are freed", func() bool {
		s := stats(t, d)
		return s.Sealed == 40 && s.Duplicates == 11*40
	})
	checkTier(t, d)
}

func TestReservationWaitsForARelease(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Wait, o.Cache = 10*time.Second, -1 })
	r := attach(t, dir, "r")
	blocks := testChain("full", c.Capacity())
	mustPut(t, c, blocks...)
	refs := r.Lease(keysOf(blocks))
	got := make(chan error, 1)
	go func() {
		_, err := put(c, testChain("later", 1)[0])
		got <- err
	}()
	until(t, "the reservation waits", func() bool { return stats(t, d).Waiting == 1 })
	select {
	case err := <-got:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	r.Release(refs)
	if err := <-got; err != nil {
		t.Fatalf("after the release: %v", err)
	}
	checkTier(t, d)
}

// Slots that another client holds back unused are given up when somebody waits.
func TestUnusedReservationsAreGivenUp(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 4<<20)
	hoarder := attach(t, dir, "h", func(o *Options) { o.Wait = -1 })
	slots, err := hoarder.Reserve(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	hoarder.Abandon(slots)
	if s := stats(t, d); s.Reserved < 2 {
		t.Fatalf("%d slots in reserve, the test needs some", s.Reserved)
	}
	c := attach(t, dir, "w", func(o *Options) { o.Wait = 10 * time.Second })
	all, err := c.Reserve(t.Context(), c.Capacity())
	if err != nil || len(all) != c.Capacity() {
		t.Fatalf("%d of %d slots, %v", len(all), c.Capacity(), err)
	}
	if _, err := hoarder.Reserve(t.Context(), 1); !errors.Is(err, ErrFull) {
		t.Fatalf("one more than there are: %v, want ErrFull", err)
	}
	if _, err := c.Reserve(t.Context(), c.Capacity()+1); !errors.Is(err, ErrFull) {
		t.Fatalf("more than there can be: %v, want ErrFull", err)
	}
	c.Abandon(all)
	until(t, "all are free", func() bool { s := stats(t, d); return s.Free+s.Reserved == s.Total })
	checkTier(t, d)
}

func TestSlotsCannotBeSealedTwiceOrByOthers(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	a, b := attach(t, dir, "a"), attach(t, dir, "b")
	slots, err := a.Reserve(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	blocks := testChain("x", 3)
	if _, err := b.Seal(slots[0], blocks[0]); !errors.Is(err, ErrLost) {
		t.Errorf("another client's slot: %v", err)
	}
	if _, err := a.Seal(slots[0], kvtier.Block{}); !errors.Is(err, kvtier.ErrBadBlock) {
		t.Errorf("no key: %v", err)
	}
	data := make([]byte, testBlock)
	pattern(data, blocks[0].Key)
	if _, err := a.SealFrom(slots[0], blocks[0], data[1:]); !errors.Is(err, kvtier.ErrBadBlock) {
		t.Errorf("short data: %v", err)
	}
	if _, err := a.SealFrom(slots[0], blocks[0], data); err != nil {
		t.Fatal(err)
	}
	if refs := b.Lease(keysOf(blocks[:1])); len(refs) != 1 || !b.Verify(refs[0]) || !hasPattern(b.Data(refs[0]), blocks[0].Key) {
		t.Error("what SealFrom copied is not what is read")
	}
	if _, err := a.Seal(slots[0], blocks[1]); !errors.Is(err, ErrLost) {
		t.Errorf("second seal: %v", err)
	}
	a.Abandon(slots[:1]) // no longer its slot: nothing happens
	a.Abandon(slots[1:])
	a.Abandon(slots[1:])
	if n := a.Match(keysOf(blocks)); n != 1 {
		t.Errorf("%d blocks found, want 1", n)
	}
	until(t, "one sealed", func() bool { return stats(t, d).Sealed == 1 })
	checkTier(t, d)
}

func TestClientWithoutDaemon(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Wait, o.Cache = 2*time.Second, -1 })
	blocks := testChain("a", 3)
	mustPut(t, c, blocks...)
	_ = d.Close()
	until(t, "the client sees it", func() bool { return !c.Connected() })
	refs := c.Lease(keysOf(blocks))
	if len(refs) != 3 || !c.Verify(refs[2]) {
		t.Fatal("blocks cannot be read while the daemon is away")
	}
	c.Release(refs)
	if _, err := c.Reserve(t.Context(), 1); !errors.Is(err, ErrDown) {
		t.Fatalf("reserve: %v, want ErrDown", err)
	}
	startDaemon(t, dir, 1<<20)
	until(t, "it is connected again", c.Connected)
	mustPut(t, c, testChain("b", 2)...)
}

func TestClientOfAReplacedFolder(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	mustPut(t, c, testChain("a", 2)...)
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	startDaemon(t, dir, 1<<20)
	until(t, "the client notices", func() bool { return c.Err() != nil })
	if _, err := c.Reserve(t.Context(), 20); !errors.Is(err, ErrReplaced) && !errors.Is(err, ErrDown) {
		t.Fatalf("reserve: %v", err)
	}
	if n := c.Match(keysOf(testChain("a", 2))); n != 2 {
		t.Fatalf("what is mapped can no longer be read: %d", n)
	}
}

func TestClosedClient(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 2)
	mustPut(t, c, blocks...)
	refs := c.Lease(keysOf(blocks))
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if c.Match(keysOf(blocks)) != 0 || c.Lease(keysOf(blocks)) != nil || c.Valid(refs[0]) || c.Verify(refs[0]) {
		t.Error("a closed client still reads")
	}
	if _, err := c.Reserve(t.Context(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("reserve: %v, want ErrClosed", err)
	}
	if c.Data(refs[0]) != nil || (Slot{}).Data() != nil {
		t.Error("a closed client still hands out memory")
	}
	c.Release(refs)
	until(t, "nothing is left of it", func() bool { s := stats(t, d); return s.Clients == 0 && s.Leased == 0 && s.Reserved == 0 })
	if s := stats(t, d); s.Sealed != 2 {
		t.Errorf("%d sealed, want 2", s.Sealed)
	}
}

// Complaints 12, 23, 29, 42 of the facts: readers, with and without lease, race
// with eviction in a pool that is far too small. They get the block's bytes or a
// refusal, and a leased chain stays whole.
func TestReadersDuringEviction(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	w := attach(t, dir, "w")
	pinned := testChain("pinned", 20)
	mustPut(t, w, pinned...)
	p := attach(t, dir, "p")
	pins := p.Lease(keysOf(pinned))
	var wg sync.WaitGroup
	for i := range 3 {
		c := attach(t, dir, fmt.Sprint("c", i))
		wg.Go(func() {
			if got := churn(c, fmt.Sprint("seed", i), 150); got[:2] != "ok" {
				t.Error(got)
			}
		})
	}
	wg.Wait()
	if s := stats(t, d); s.Evictions == 0 {
		t.Error("nothing was evicted: the test shows nothing")
	}
	for _, r := range pins {
		if !p.Verify(r) || !hasPattern(p.Data(r), r.Key) {
			t.Error("a leased block changed")
		}
	}
	if n := w.Match(keysOf(pinned)); n != 20 {
		t.Errorf("%d of 20 leased blocks are left", n)
	}
	checkTier(t, d)
}
