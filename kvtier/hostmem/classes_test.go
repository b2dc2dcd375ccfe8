package hostmem

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// Two models with blocks of different sizes live within one budget, both under
// pressure; when one goes, a third takes its memory, and the other does not notice.
func TestTwoModelsAtOnce(t *testing.T) {
	dir := shortDir(t)
	const budget = 8 << 20
	d := startDaemonWith(t, Config{Dir: dir, Bytes: budget, PoolBytes: budget / 2})
	small := attach(t, dir, "small", model("small", 20_000))
	large := attach(t, dir, "large", model("large", 300_000))
	var wg sync.WaitGroup
	for _, c := range []*Client{small, large} {
		wg.Go(func() { crowd(t, c, 3*c.Capacity()) })
	}
	wg.Wait()
	pools, err := d.Stats()
	if err != nil || len(pools) != 2 {
		t.Fatalf("%d pools, %v", len(pools), err)
	}
	for _, p := range pools {
		if p.Evictions == 0 || p.FileBytes > budget/2 || p.FileBytes < budget/2-2*p.BlockBytes-64<<10 {
			t.Errorf("pool %s: %d evictions, %d bytes of its half", p.Pool, p.Evictions, p.FileBytes)
		}
	}
	if n := allocated(t, dir); n < budget || n > budget+4096 {
		t.Errorf("%d bytes in the folder, the budget is %d", n, budget)
	}

	kept := testChain("kept", 5)
	mustPut(t, large, kept...)
	if err := small.Close(); err != nil {
		t.Fatal(err)
	}
	third := attach(t, dir, "third", model("third", 50_000))
	wg.Go(func() { crowd(t, third, 2*third.Capacity()) })
	wg.Go(func() { // the other one's blocks are read all the while
		for range 200 {
			refs := large.Lease(keysOf(kept))
			if len(refs) != 5 || !large.Verify(refs[4]) || !hasPattern(large.Data(refs[4])[:1024], kept[4].Key) {
				t.Errorf("%d of 5 blocks of the model that stayed", len(refs))
				return
			}
			large.Release(refs)
		}
	})
	wg.Wait()
	if n := allocated(t, dir); n < budget || n > budget+4096 {
		t.Errorf("%d bytes in the folder after a pool changed hands, the budget is %d", n, budget)
	}
	checkTier(t, d)
}

// A model takes the whole budget; the next one has all of it once the first is gone,
// and is refused, by name, while it is not.
func TestBudgetMovesToTheNextModel(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 4<<20)
	first := attach(t, dir, "a", model("first", 30_000))
	crowd(t, first, 2*first.Capacity())
	o := Options{Dir: dir, Writer: "b", Pool: "second", BlockBytes: 200_000}
	if _, err := tryAttach(t, o); !errors.Is(err, ErrBudget) {
		t.Fatalf("while the first model is served: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := tryAttach(t, o)
	if err != nil {
		t.Fatal(err)
	}
	crowd(t, second, 2*second.Capacity())
	if s := stats(t, d); s.Pool != "second" || s.FileBytes < 4<<20-200_000-64<<10 {
		t.Errorf("%+v", s)
	}
	checkTier(t, d)
}

func model(pool string, block int64) func(*Options) {
	return func(o *Options) { o.Pool, o.BlockBytes, o.Wait = pool, block, 10*time.Second }
}

// crowd stores n chains of one block and reads each back.
func crowd(t *testing.T, c *Client, n int) {
	t.Helper()
	buf := make([]byte, c.BlockBytes())
	for i := range n {
		b := testChain(fmt.Sprint(c.Pool(), i), 1)[0]
		if _, err := put(c, b); err != nil {
			t.Errorf("%s: block %d: %v", c.Pool(), i, err)
			return
		}
		refs := c.Lease([]kvtier.Key{b.Key})
		if len(refs) == 1 && (!c.Copy(refs[0], buf) || !hasPattern(buf[:1024], b.Key)) {
			t.Errorf("%s: block %d has other bytes", c.Pool(), i)
		}
		c.Release(refs)
	}
}
