package hostmem

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/kvtier"
)

func TestTooSmallFilesystemIsRefusedAtStart(t *testing.T) {
	dir := shortDir(t)
	free, err := freeBytes(dir)
	if err != nil {
		t.Fatal(err)
	}
	asked := free + 1<<40
	_, err = NewDaemon(Config{Dir: dir, Bytes: asked})
	if !errors.Is(err, ErrNoSpace) {
		t.Fatalf("%v, want ErrNoSpace", err)
	}
	if text := err.Error(); !strings.Contains(text, fmt.Sprint(asked)) || !strings.Contains(text, " bytes free") {
		t.Errorf("%q does not name both sizes", text)
	}
}

func TestBudgetIsAllocatedAtStart(t *testing.T) {
	dir := shortDir(t)
	startDaemon(t, dir, 4<<20)
	before := allocated(t, dir)
	if before < 4<<20 {
		t.Errorf("%d bytes allocated at start, want the whole budget of %d", before, 4<<20)
	}
	attach(t, dir, "w")
	if after := allocated(t, dir); after > 4<<20+64<<10 {
		t.Errorf("%d bytes allocated with one pool, the budget is %d", after, 4<<20)
	}
}

func allocated(t *testing.T, dir string) (n int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().IsRegular() {
			n += st.Size()
		}
	}
	return n
}

func TestConfigReportsEveryProblem(t *testing.T) {
	err := Config{Dir: strings.Repeat("d", 200), Bytes: 5, PoolBytes: 9, EventBatches: -1}.Validate()
	for _, want := range []string{"at least 1048576", "9 bytes per pool of 5", "-1 event", "shorter folder"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func tryAttach(t *testing.T, o Options) (*Client, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := Attach(ctx, o)
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func TestPoolsShareTheBudget(t *testing.T) {
	dir := shortDir(t)
	d, err := NewDaemon(Config{Dir: dir, Bytes: 4 << 20, PoolBytes: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	a := attach(t, dir, "a")
	b, err := tryAttach(t, Options{Dir: dir, Writer: "b", Pool: testPool, BlockBytes: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tryAttach(t, Options{Dir: dir, Writer: "c", Pool: "third", BlockBytes: testBlock})
	if !errors.Is(err, ErrBudget) || !strings.Contains(err.Error(), testPool) {
		t.Fatalf("third pool: %v, want ErrBudget that names who has the memory", err)
	}
	mustPut(t, a, testChain("a", 3)...)
	if n := b.Match(keysOf(testChain("a", 3))); n != 0 {
		t.Errorf("%d blocks of another pool are found", n)
	}
	slots, err := b.Reserve(t.Context(), 1)
	if err != nil || len(slots[0].Data()) != 100_000 {
		t.Fatalf("reserve in the second pool: %v", err)
	}
	checkTier(t, d)

	// A pool that nobody uses any more gives way.
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := tryAttach(t, Options{Dir: dir, Writer: "c", Pool: "third", BlockBytes: testBlock})
	if err != nil {
		t.Fatalf("after the first pool's client ended: %v", err)
	}
	mustPut(t, c, testChain("c", 3)...)
	checkTier(t, d)
	_ = d.Close()
	d = startDaemonWith(t, Config{Dir: dir, Bytes: 4 << 20, PoolBytes: 2 << 20})
	s, err := d.Stats()
	if err != nil || len(s) != 2 {
		t.Fatalf("%d pools after a restart, %v, want 2", len(s), err)
	}
	checkTier(t, d)
}

func startDaemonWith(t *testing.T, cfg Config) *Daemon {
	t.Helper()
	d, err := NewDaemon(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestBadAttachments(t *testing.T) {
	dir := shortDir(t)
	startDaemon(t, dir, 1<<20)
	for _, tc := range []struct {
		name string
		o    Options
		want error
	}{
		{"no writer", Options{Dir: dir, Pool: "p", BlockBytes: 1}, ErrName},
		{"writer with a path", Options{Dir: dir, Writer: "../w", Pool: "p", BlockBytes: 1}, ErrName},
		{"no pool", Options{Dir: dir, Writer: "w", BlockBytes: 1}, ErrName},
		{"no block size", Options{Dir: dir, Writer: "w", Pool: "p"}, ErrName},
		{"blocks larger than the budget", Options{Dir: dir, Writer: "w", Pool: "p", BlockBytes: 2 << 20}, ErrBudget},
		{"absurd blocks", Options{Dir: dir, Writer: "w", Pool: "p", BlockBytes: math.MaxInt64}, ErrName},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := tryAttach(t, tc.o); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := Attach(ctx, Options{Dir: dir + "-none", Writer: "w", Pool: "p", BlockBytes: 1}); !errors.Is(err, ErrDown) {
		t.Errorf("no folder: %v, want ErrDown", err)
	}
}

func TestDamagedPoolFilesAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(path string) error
	}{
		{"truncated", func(p string) error { return os.Truncate(p, 100_000) }},
		{"short", func(p string) error { return os.Truncate(p, 10) }},
		{"other magic", func(p string) error { return poke(p, offMagic, 'X') }},
		{"other version", func(p string) error { return poke(p, offVersion, 99) }},
		{"other byte order", func(p string) error { return poke(p, offOrder, 1) }},
		{"flipped field", func(p string) error { return poke(p, offBlock, 77) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := shortDir(t)
			d := startDaemon(t, dir, 1<<20)
			attach(t, dir, "w")
			_ = d.Close()
			path := filepath.Join(dir, poolFile(testPool, testBlock))
			if err := tc.damage(path); err != nil {
				t.Fatal(err)
			}
			if _, err := NewDaemon(Config{Dir: dir, Bytes: 1 << 20}); !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want ErrLayout that names the file", err)
			}
		})
	}
}

func poke(path string, off int64, v byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte{v}, off)
	return err
}

func TestSmallerBudgetThanTheFolderHolds(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 4<<20)
	attach(t, dir, "w")
	_ = d.Close()
	if _, err := NewDaemon(Config{Dir: dir, Bytes: 2 << 20}); !errors.Is(err, ErrBudget) {
		t.Errorf("%v, want ErrBudget", err)
	}
	d = startDaemon(t, dir, 8<<20) // more is fine
	if got := allocated(t, dir); got < 8<<20-64<<10 {
		t.Errorf("%d bytes allocated after the budget grew to %d", got, 8<<20)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files are left after Remove: %v", err)
	}
}

func TestEventsAndSnapshot(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 4)
	mustPut(t, c, blocks...)
	view := map[kvtier.Key]kvtier.Block{}
	var seq uint64
	pull := func(until int) {
		t.Helper()
		for n := 0; n < until; {
			b := <-d.Events()
			if b.Pool != testPool || b.Epoch != 1 || b.Seq != seq+1 || b.Gap {
				t.Fatalf("batch %+v after %d", b, seq)
			}
			seq = b.Seq
			for _, e := range b.Events {
				apply(view, e)
				n++
			}
		}
	}
	pull(4)
	snap, err := d.Snapshot()
	if err != nil || len(snap) != 1 || snap[0].Seq != seq {
		t.Fatalf("snapshot %+v, %v", snap, err)
	}
	if diff := cmp.Diff(blocks, snap[0].Blocks); diff != "" {
		t.Error(diff)
	}
	refs := c.Lease(keysOf(blocks[:1]))
	if n, err := d.Clear(); err != nil || n != 3 {
		t.Fatalf("cleared %d, %v, want 3: one is leased", n, err)
	}
	pull(3)
	if len(view) != 1 {
		t.Errorf("the view holds %d blocks, want 1", len(view))
	}
	c.Release(refs)
	if n, err := d.Clear(); err != nil || n != 1 {
		t.Fatalf("cleared %d, %v, want 1", n, err)
	}
	pull(1)
	if len(view) != 0 {
		t.Errorf("the view holds %d blocks, want none", len(view))
	}
}

func apply(view map[kvtier.Key]kvtier.Block, e kvtier.Event) {
	switch e.Kind {
	case kvtier.EventStored:
		view[e.Key] = e.Block
	case kvtier.EventEvicted:
		delete(view, e.Key)
	case kvtier.EventCleared:
		clear(view)
	}
}

func TestUnreadEventsBecomeAGap(t *testing.T) {
	o := outbox{pool: "p", epoch: 3}
	for i := range 2*maxEventsQueue + 5 {
		o.add(kvtier.Event{Block: kvtier.Block{Index: i}})
	}
	b, ok := o.next()
	if !ok || !b.Gap || b.Seq != 1 || len(b.Events) > maxEventsQueue || o.dropped == 0 {
		t.Fatalf("gap %v, seq %d, %d events, %d dropped", b.Gap, b.Seq, len(b.Events), o.dropped)
	}
	if last := b.Events[len(b.Events)-1].Index; last != 2*maxEventsQueue+4 {
		t.Errorf("the last event is %d", last)
	}
	o.sent()
	o.add(kvtier.Event{})
	if b, _ := o.next(); b.Gap || b.Seq != 2 {
		t.Errorf("after the gap: %+v", b)
	}
}
