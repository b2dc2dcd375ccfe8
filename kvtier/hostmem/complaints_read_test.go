package hostmem

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// damage flips one byte of a stored block.
func damage(t *testing.T, c *Client, b kvtier.Block) {
	t.Helper()
	refs := c.Lease([]kvtier.Key{b.Key})
	if len(refs) != 1 {
		t.Fatal("the block to damage is not there")
	}
	c.Data(refs[0])[testBlock/2] ^= 0xFF
	c.Release(refs)
}

// load reads the resident prefix of a chain as an executor does: the first block that
// cannot be read ends it. Buffers behind it are not touched.
func load(c *Client, blocks []kvtier.Block) (bufs [][]byte, usable int) {
	for range blocks {
		bufs = append(bufs, bytes.Repeat([]byte{0xAA}, testBlock))
	}
	refs := c.Lease(keysOf(blocks))
	defer c.Release(refs)
	tmp := make([]byte, testBlock)
	for i, r := range refs {
		if !c.Copy(r, tmp) {
			return bufs, i
		}
		copy(bufs[i], tmp)
	}
	return bufs, len(refs)
}

func unreadableBlockEndsThePrefix(t *testing.T) {
	dir := shortDir(t)
	startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 8)
	mustPut(t, c, blocks...)
	damage(t, c, blocks[4])
	bufs, n := load(c, blocks)
	if n != 4 {
		t.Errorf("%d blocks are usable, want 4", n)
	}
	for i, b := range bufs[4:] {
		if bytes.Count(b, []byte{0xAA}) != testBlock {
			t.Errorf("buffer %d was filled", i+4)
		}
	}
}

func failedLoadIsCounted(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 4)
	mustPut(t, c, blocks...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 4 })
	damage(t, c, blocks[3])
	if _, n := load(c, blocks); n != 3 {
		t.Errorf("%d blocks are reported as loaded, want 3", n)
	}
	until(t, "the failure is counted", func() bool { return stats(t, d).Corrupt == 1 })
}

func missedKeyFillsNoBuffer(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 8)
	mustPut(t, c, blocks[:3]...)
	mustPut(t, c, blocks[4:]...)
	bufs, n := load(c, blocks)
	if n != 3 {
		t.Errorf("%d blocks are hits, want 3", n)
	}
	for i, b := range bufs {
		if filled := bytes.Count(b, []byte{0xAA}) != testBlock; filled != (i < 3) || filled && !hasPattern(b, blocks[i].Key) {
			t.Errorf("buffer %d: filled %v", i, filled)
		}
	}
	checkTier(t, d)
}

// 8 goroutines read 64 blocks at random of which 16 fit.
func ownContentOrAMiss(t *testing.T) {
	dir := shortDir(t)
	d, err := NewDaemon(Config{Dir: dir, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	c := attach(t, dir, "w", func(o *Options) { o.BlockBytes, o.Cache = 60_000, -1 })
	var wg sync.WaitGroup
	var hits, wrong atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			buf := make([]byte, 60_000)
			for range 300 {
				b := testChain(fmt.Sprint("k", rng.IntN(64)), 1)[0]
				refs := c.Lease([]kvtier.Key{b.Key})
				if len(refs) == 0 {
					if slots, err := c.Reserve(t.Context(), 1); err == nil {
						pattern(buf, b.Key)
						_, _ = c.SealFrom(slots[0], b, buf) // stored by another one first: as good
					}
					continue
				}
				if c.Copy(refs[0], buf) {
					hits.Add(1)
					if !hasPattern(buf[:56_000], b.Key) {
						wrong.Add(1)
					}
				}
				c.Release(refs)
			}
		})
	}
	wg.Wait()
	if hits.Load() == 0 || wrong.Load() != 0 || stats(t, d).Evictions == 0 {
		t.Errorf("%d hits, %d wrong, %d evictions", hits.Load(), wrong.Load(), stats(t, d).Evictions)
	}
	checkTier(t, d)
}

// 8 goroutines store parts of a chain; a reader that finds a block finds it whole.
func resultsAreCompleteWhenSeen(t *testing.T) {
	dir := shortDir(t)
	startDaemon(t, dir, 2<<20)
	w, r := attach(t, dir, "w"), attach(t, dir, "r")
	blocks := testChain("a", 160)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() { mustPut(t, w, blocks[g*20:g*20+20]...) })
	}
	buf := make([]byte, testBlock)
	until(t, "all are found", func() bool {
		for _, b := range blocks {
			refs := r.Lease([]kvtier.Key{b.Key})
			if len(refs) == 1 && (!r.Copy(refs[0], buf) || !hasPattern(buf, b.Key)) {
				t.Errorf("block %d is found and not whole", b.Index)
			}
			r.Release(refs)
		}
		return r.Match(keysOf(blocks)) == len(blocks)
	})
	wg.Wait()
}

func lookUpPinsNothing(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Wait, o.Cache = -1, -1 })
	blocks := testChain("a", c.Capacity())
	mustPut(t, c, blocks...)
	for _, b := range blocks {
		if c.Match([]kvtier.Key{b.Key}) != 1 {
			t.Fatal("a block is not found")
		}
	}
	until(t, "known", func() bool { return stats(t, d).Sealed == len(blocks) })
	mustPut(t, c, testChain("b", c.Capacity())...) // needs every slot
	if n := c.Match(keysOf(blocks)); n != 0 {
		t.Errorf("%d blocks stay because they were looked up", n)
	}
}

func cancelledReadLeavesNoLease(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	w := attach(t, dir, "w", func(o *Options) { o.Wait, o.Cache = -1, -1 })
	r := attach(t, dir, "r")
	blocks := testChain("a", w.Capacity())
	mustPut(t, w, blocks...)
	refs := r.Lease(keysOf(blocks))
	buf := make([]byte, testBlock)
	for _, ref := range refs[:len(refs)/2] { // the request is cancelled half-way
		if !r.Copy(ref, buf) {
			t.Fatal("a block cannot be read")
		}
	}
	r.Release(refs)
	if s := stats(t, d); s.Leased != 0 {
		t.Fatalf("%d leases are left", s.Leased)
	}
	until(t, "known", func() bool { return stats(t, d).Sealed == len(blocks) })
	mustPut(t, w, testChain("b", w.Capacity())...)
}

// A reader is in the middle of A when a batch with A goes and its slot is filled
// anew. With a lease A stays; without one the rest of the read is refused.
func evictionUnderAReader(t *testing.T) {
	for _, leased := range []bool{true, false} {
		dir := shortDir(t)
		d := startDaemon(t, dir, 1<<20)
		c := attach(t, dir, "w", func(o *Options) { o.Wait, o.Cache = -1, -1 })
		first := testChain("a", 1)
		mustPut(t, c, first...)
		for i := range c.Capacity() - 1 {
			mustPut(t, c, testChain(fmt.Sprint("batch", i), 1)...)
		}
		until(t, "known", func() bool { return stats(t, d).Sealed == c.Capacity() })
		refs := c.Lease(keysOf(first))
		a := refs[0]
		half := slices.Clone(c.Data(a)[:testBlock/2])
		if !leased {
			c.Release(refs)
		}
		for i := range 2 * c.Capacity() { // every slot that may be had is filled anew
			mustPut(t, c, testChain(fmt.Sprint("new", i), 1)...)
		}
		whole := append(half, c.Data(a)[testBlock/2:]...)
		if ok := c.Valid(a); ok != leased || ok && !hasPattern(whole, a.Key) {
			t.Errorf("leased %v: valid %v", leased, ok)
		}
		if c.Copy(a, whole) != leased {
			t.Errorf("leased %v: copied", leased)
		}
	}
}

func staleHitEndsAsAMiss(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 1)
	mustPut(t, c, blocks...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 1 })
	if c.Match(keysOf(blocks)) != 1 {
		t.Fatal("not found")
	}
	if _, err := d.Clear(); err != nil { // behind the reader's back
		t.Fatal(err)
	}
	if _, n := load(c, blocks); n != 0 || c.Match(keysOf(blocks)) != 0 {
		t.Error("a block that is gone is still a hit")
	}
}

func flippedByteIsSeen(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 1)
	mustPut(t, c, blocks...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 1 })
	damage(t, c, blocks[0])
	if _, n := load(c, blocks); n != 0 {
		t.Error("a damaged block is a hit")
	}
	until(t, "it is counted and removed", func() bool { s := stats(t, d); return s.Corrupt == 1 && s.Sealed == 0 })
}

// Look up, then pin, against an evictor.
func lookUpThenPin(t *testing.T) {
	rounds := 100_000
	if testing.Short() {
		rounds = 10_000
	}
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	w, r := attach(t, dir, "w"), attach(t, dir, "r")
	chain := testChain("a", 40)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var puts atomic.Int64
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for _, b := range append(testChain(fmt.Sprint("e", i), 150), chain...) {
				_, _ = put(w, b) // full while all is leased: the next one comes
				puts.Add(1)
			}
		}
	})
	pins := 0
	for i := range rounds {
		// On one processor this loop would be over before the writer has stored anything.
		if i%(rounds/100) == 0 {
			before := puts.Load()
			until(t, "the writer goes on", func() bool { return puts.Load() >= before+10 })
		}
		n := r.Match(keysOf(chain))
		refs := r.Lease(keysOf(chain[:n]))
		for _, ref := range refs[:min(1, len(refs))] {
			pins++
			if !r.Valid(ref) || !hasPattern(r.Data(ref)[:64], ref.Key) {
				t.Error("a pin holds something else")
			}
		}
		r.Release(refs)
	}
	close(stop)
	wg.Wait()
	if s := stats(t, d); pins == 0 || s.Evictions == 0 {
		t.Errorf("%d pins, %d evictions", pins, s.Evictions)
	}
	checkTier(t, d)
}

func reusedSlotIsRefused(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Cache = -1 })
	n := c.Capacity()
	first := testChain("a", n)
	mustPut(t, c, first...)
	until(t, "known", func() bool { return stats(t, d).Sealed == n })
	refs := c.Lease(keysOf(first))
	c.Release(refs) // between look-up and copy
	mustPut(t, c, testChain("b", n)...)
	buf := make([]byte, testBlock)
	for _, r := range refs {
		if c.Valid(r) || c.Verify(r) || c.Copy(r, buf) {
			t.Error("a slot that was filled anew is read as the old block")
		}
	}
}

// Another tenant's probe of the same tokens takes as long as one of tokens that
// nobody has.
func otherTenantSeesNoTime(t *testing.T) {
	dir := shortDir(t)
	startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	mustPut(t, c, testChain("tenant a", 64)...)
	other, unknown := keysOf(testChain("tenant b", 64)), keysOf(testChain("nobody", 64))
	var took [2][]time.Duration
	for range 4000 {
		for i, keys := range [][]kvtier.Key{other, unknown} {
			begin := time.Now()
			if n := c.Match(keys); n != 0 {
				t.Fatalf("%d blocks are found", n)
			}
			took[i] = append(took[i], time.Since(begin))
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	a, b := took[0][len(took[0])/2], took[1][len(took[1])/2]
	if a > 3*b+time.Microsecond || b > 3*a+time.Microsecond {
		t.Errorf("a probe takes %v, of unknown tokens %v", a, b)
	}
}

func leasedChainIsUntouched(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	w, r := attach(t, dir, "w"), attach(t, dir, "r")
	chain := testChain("a", 40)
	mustPut(t, w, chain...)
	refs := r.Lease(keysOf(chain))
	for i := range 2 * w.Capacity() {
		mustPut(t, w, testChain(fmt.Sprint(i), 1)...)
	}
	for _, ref := range refs {
		if !r.Verify(ref) || !hasPattern(r.Data(ref), ref.Key) {
			t.Error("a leased block changed")
		}
	}
	if len(refs) != 40 || stats(t, d).Evictions == 0 {
		t.Errorf("%d leased, %d evicted", len(refs), stats(t, d).Evictions)
	}
}
