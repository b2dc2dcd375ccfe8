package hostmem

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// TestManyBlocks: whatever is asked of a daemon with many blocks, others get slots
// meanwhile. A wait is measured in CPU time of this process, so that other work on the
// machine does not count. One step takes about a tenth of the bound; a scan of everything
// in one step would take several times as long.
func TestManyBlocks(t *testing.T) {
	n := 200_000
	if testing.Short() {
		n = 50_000
	}
	dir := shortDir(t)
	size := newLayout(64, int64(n)).file + 1<<20
	d := startDaemon(t, dir, size)
	events, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	drain(events, d)
	tiny := func(o *Options) { o.BlockBytes = 64 }
	w := attach(t, dir, "w", tiny)
	var chains [][]kvtier.Block
	for i := 0; i < n; i += 1000 {
		chains = append(chains, fillChain(t, w, fmt.Sprint("c", i), 1000))
	}
	until(t, "known", func() bool { return stats(t, d).Sealed == n })

	other := attach(t, dir, "other", tiny, func(o *Options) { o.Cache = -1 })
	reader := attach(t, dir, "reader", tiny)
	reader.Lease(keysOf(chains[len(chains)-1]))
	for _, tc := range []struct {
		what string
		run  func() error
	}{
		{"stats", func() error { _, err := d.Stats(); return err }},
		{"snapshot", func() error { _, err := d.Snapshot(); return err }},
		{"erase", func() error { _, err := d.Erase(keysOf(chains[1][500:501])); return err }},
		{"a client ends", reader.Close},
		{"clear", func() error { _, err := d.Clear(); return err }},
	} {
		began := time.Now()
		worst := askMeanwhile(t, other, tc.run)
		t.Logf("%s: %v in all, the longest of the reservations meanwhile %v of CPU time", tc.what, time.Since(began), worst)
		if worst > 150*time.Millisecond {
			t.Errorf("%s: a reservation took %v of CPU time meanwhile", tc.what, worst)
		}
	}
	checkTier(t, d)

	fillChain(t, w, "again", 1000)
	_ = d.Close()
	began := time.Now()
	d = startDaemon(t, dir, size)
	drain(events, d)
	t.Logf("restart over %d slots: %v", n, time.Since(began))
	if s := stats(t, d); s.Sealed < 1000 {
		t.Errorf("%d blocks after the restart", s.Sealed)
	}
}

// drain reads events as a tier process does.
func drain(ctx context.Context, d *Daemon) {
	go func() {
		for {
			select {
			case <-d.Events():
			case <-ctx.Done():
				return
			}
		}
	}()
}

func fillChain(t *testing.T, c *Client, seed string, n int) []kvtier.Block {
	t.Helper()
	slots, err := c.Reserve(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	chain, buf := testChain(seed, n), make([]byte, c.BlockBytes())
	for i, s := range slots {
		if _, err := c.SealFrom(s, chain[i], buf); err != nil {
			t.Fatal(err)
		}
	}
	return chain
}

// cpuTime is what this process has used so far.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Error(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// askMeanwhile reserves again and again while run runs, and returns the longest wait in
// CPU time.
func askMeanwhile(t *testing.T, c *Client, run func() error) time.Duration {
	t.Helper()
	done := make(chan struct{})
	var waits []time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			begin := cpuTime(t)
			slots, err := c.Reserve(t.Context(), 1)
			if err != nil {
				t.Errorf("reserve: %v", err)
				return
			}
			waits = append(waits, cpuTime(t)-begin)
			c.Abandon(slots)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	if err := run(); err != nil {
		t.Errorf("%v", err)
	}
	close(done)
	wg.Wait()
	return slices.Max(waits)
}
