package executor

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
)

// overDisk is a memory of 1 MiB above a disk of 16 MiB.
func overDisk(t *testing.T) (*hostmem.Daemon, *hostmem.Client) {
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
	d, err := hostmem.NewDaemon(hostmem.Config{Dir: dir, Bytes: 1 << 20, Disk: t.TempDir(), DiskBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := hostmem.Attach(ctx, hostmem.Options{Dir: dir, Writer: "a", Pool: "p", BlockBytes: 4096, Wait: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return d, c
}

// onDiskAlone stores a prompt's blocks, then others until memory has none of them and all
// are on disk.
func onDiskAlone(t *testing.T, d *hostmem.Daemon, c *hostmem.Client, r *schemas.Ready, ks []kvtier.Key) {
	t.Helper()
	all := func(int) bool { return true }
	sealChain(t, c, r, ks, all)
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; c.Match(ks) > 0; i++ {
		before, _ := d.Disk()
		other, oks := prompted(t, "other"+string(rune('a'+i%26))+string(rune('a'+i/26)), 12)
		sealChain(t, c, other, oks, all)
		tick := time.NewTicker(5 * time.Millisecond)
		for n := 0; n < 8; n++ { // let the disk keep up
			<-tick.C
			if now, _ := d.Disk(); now.Writes >= before.Writes+12 {
				break
			}
		}
		tick.Stop()
		if time.Now().After(deadline) {
			t.Fatal("the prompt's blocks do not leave memory")
		}
	}
	if st, _ := d.Disk(); st.Late > 0 {
		t.Fatalf("the disk did not keep up: %+v", st)
	}
}

// TestBringFromDisk: a prompt whose blocks lie on disk alone comes back, also when the job
// names its last block only.
func TestBringFromDisk(t *testing.T) {
	for _, tc := range []struct {
		name string
		path bool
	}{{"tokens known", false}, {"path known", true}} {
		t.Run(tc.name, func(t *testing.T) {
			d, c := overDisk(t)
			r, ks := prompted(t, "salt", 24)
			onDiskAlone(t, d, c, r, ks)
			b := newBringer(c, testFormat, "", slog.New(slog.DiscardHandler), lowersOf(c, slog.New(slog.DiscardHandler))...)
			defer func() { _ = b.close() }()
			if tc.path {
				short := *r
				short.Prompt.TailFrom = 24 * 64
				short.Prompt.Tail = r.Prompt.Tail[24*64:]
				short.Prompt.Path = []schemas.Extent{{Key: ks[23].String(), N: 24}}
				r = &short
			}
			if got := b.bring(&schemas.BringOp{Ready: r}); got != 24 || c.Match(ks) != 24 {
				t.Errorf("%d blocks came, %d are in memory, want 24", got, c.Match(ks))
			}
		})
	}
	// A memory without a disk has nothing below it.
	if l := lowersOf(newArena(t, 4096).a, slog.Default()); len(l) != 0 {
		t.Errorf("%d places below a memory without a disk", len(l))
	}
}
