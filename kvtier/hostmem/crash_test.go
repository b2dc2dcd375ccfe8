package hostmem

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

func TestKilledWriterLosesOnlyWhatItHadNotSealed(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	w := startChild(t, "client", dir, "w", 0)
	w.ask("put <nil>", "put a 5")
	w.ask("half <nil>", "half b 3")
	if s := stats(t, d); s.Reserved < 3 {
		t.Fatalf("%d reserved, want at least 3", s.Reserved)
	}
	w.kill()
	until(t, "its reservations are reclaimed", func() bool { s := stats(t, d); return s.Reserved == 0 && s.Clients == 0 })
	c := attach(t, dir, "r")
	if n := c.Match(keysOf(testChain("a", 5))); n != 5 {
		t.Fatalf("%d of 5 sealed blocks are left", n)
	}
	if s := stats(t, d); s.Sealed != 5 {
		t.Fatalf("%d sealed, want 5", s.Sealed)
	}
	checkTier(t, d)
}

func TestStoppedWriterKeepsItsReservation(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	w := startChild(t, "client", dir, "w", 0)
	w.ask("half <nil>", "half b 3")
	w.signal(syscall.SIGSTOP)
	c := attach(t, dir, "c")
	mustPut(t, c, testChain("fill", c.Capacity()-8)...)
	for i := range 40 { // far more than there is room for: what is evicted is never the reservation
		_, _ = put(c, testChain(fmt.Sprint(i), 1)[0])
	}
	d.call(d.probe) //nolint:errcheck // a closed daemon fails the next line
	if s := stats(t, d); s.Clients != 2 || s.Reserved < 3 {
		t.Fatalf("a stopped writer lost its place: %+v", s)
	}
	w.signal(syscall.SIGCONT)
	w.ask("finish <nil>", "finish mine")
	if n := c.Match(keysOf(testChain("mine", 3))); n != 3 {
		t.Fatalf("%d of 3 blocks sealed after the stop are found", n)
	}
	until(t, "the daemon knows them", func() bool { s := stats(t, d); return s.Free+s.Reserved+s.Sealed == s.Total })
	checkTier(t, d)
}

func TestKilledReaderLosesItsLeases(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	mustPut(t, c, testChain("a", 6)...)
	r := startChild(t, "client", dir, "r", 0)
	r.ask("lease 6", "lease a 6")
	if s := stats(t, d); s.Leased != 6 {
		t.Fatalf("%d leased, want 6", s.Leased)
	}
	r.kill()
	until(t, "its leases are gone", func() bool { return stats(t, d).Leased == 0 })
	checkTier(t, d)
}

// The daemon is killed again and again while two clients write. Nothing that was
// sealed may be missing, and clients read and seal while it is away.
func TestKilledDaemonLosesNoSealedBlock(t *testing.T) {
	dir := shortDir(t)
	const size = 8 << 20
	d := startChild(t, "daemon", dir, "", size)
	a := attach(t, dir, "a", func(o *Options) { o.Wait = 10 * time.Second })
	b := attach(t, dir, "b", func(o *Options) { o.Wait = 10 * time.Second })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	sealed := make([][]kvtier.Block, 2)
	for i, c := range []*Client{a, b} {
		wg.Go(func() {
			for n := 0; n < 400; n++ { // both fit: nothing is evicted
				blk := testChain(fmt.Sprint("w", i, "-", n), 1)[0]
				if _, err := put(c, blk); err != nil {
					t.Errorf("put %d: %v", n, err)
					return
				}
				sealed[i] = append(sealed[i], blk)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 4 {
		d.kill()
		d = startChild(t, "daemon", dir, "", size)
		until(t, "both clients are connected", func() bool { return a.Connected() && b.Connected() })
	}
	close(stop)
	wg.Wait()
	slots, err := a.Reserve(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	d.kill()
	until(t, "the client sees it", func() bool { return !a.Connected() })
	offline := testChain("offline", 2)
	for i, s := range slots {
		pattern(s.Data(), offline[i].Key)
		if _, err := a.Seal(s, offline[i]); err != nil {
			t.Fatalf("seal while no daemon runs: %v", err)
		}
	}
	if n := b.Match(keysOf(offline)); n != 2 {
		t.Fatalf("%d of 2 blocks sealed without daemon are found", n)
	}
	last := startDaemon(t, dir, size)
	until(t, "both clients are connected", func() bool { return a.Connected() && b.Connected() })
	want := 2 + len(sealed[0]) + len(sealed[1])
	until(t, "every block is in the table", func() bool { return stats(t, last).Sealed == want })
	for _, blk := range append(append(sealed[0], sealed[1]...), offline...) {
		refs := b.Lease([]kvtier.Key{blk.Key})
		if len(refs) != 1 || !b.Verify(refs[0]) || !hasPattern(b.Data(refs[0]), blk.Key) {
			t.Fatalf("block %s is lost or wrong", blk.Key.Short())
		}
		b.Release(refs)
	}
	checkTier(t, last)
}

func TestWriterThatDiesWhileNoDaemonRuns(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	w := startChild(t, "client", dir, "w", 0)
	w.ask("put <nil>", "put a 4")
	w.ask("half <nil>", "half b 3")
	w.ask("lease 4", "lease a 4")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	w.kill()
	d = startDaemon(t, dir, 1<<20)
	if s := stats(t, d); s.Sealed != 4 || s.Reserved != 0 || s.Leased != 0 || s.Clients != 0 || s.Epoch != 2 {
		t.Fatalf("after the restart: %+v", s)
	}
	checkTier(t, d)
}

// A writer that seals while no daemon runs, and whose bytes do not arrive in
// full, is caught by the checksum at the next start.
func TestTornBlockIsDroppedAtStart(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	slots, err := c.Reserve(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	blocks := testChain("torn", 2)
	for i, s := range slots {
		pattern(s.Data(), blocks[i].Key)
		if _, err := c.Seal(s, blocks[i]); err != nil {
			t.Fatal(err)
		}
	}
	slots[1].Data()[100] ^= 1
	d = startDaemon(t, dir, 1<<20)
	if s := stats(t, d); s.Sealed != 1 || s.Corrupt != 1 {
		t.Fatalf("%d sealed, %d corrupt, want 1 and 1", s.Sealed, s.Corrupt)
	}
	if n := c.Match(keysOf(blocks)); n != 1 {
		t.Fatalf("%d blocks found, want 1", n)
	}
	until(t, "connected", c.Connected)
	checkTier(t, d)
}

func TestFlippedBitIsFoundAndRemoved(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("flip", 3)
	mustPut(t, c, blocks...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 3 })
	refs := c.Lease(keysOf(blocks))
	c.Data(refs[1])[77] ^= 0x10
	if c.Verify(refs[1]) || c.Copy(refs[1], make([]byte, testBlock)) {
		t.Fatal("a flipped bit went unnoticed")
	}
	if !c.Verify(refs[0]) || !c.Verify(refs[2]) {
		t.Fatal("a sound block fails")
	}
	until(t, "it is removed", func() bool { return c.Match(keysOf(blocks)) == 1 })
	if s := stats(t, d); s.Corrupt != 1 || s.Sealed != 2 {
		t.Fatalf("%+v", s)
	}
	c.Release(refs)
	mustPut(t, c, blocks[1]) // computed again
	if n := c.Match(keysOf(blocks)); n != 3 {
		t.Fatalf("%d of 3 found after it was computed again", n)
	}
	until(t, "known", func() bool { return stats(t, d).Sealed == 3 })
	checkTier(t, d)
}

// A false report of corruption removes nothing: the daemon looks itself.
func TestReportsAreChecked(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	mustPut(t, c, testChain("a", 1)...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 1 })
	refs := c.Lease(keysOf(testChain("a", 1)))
	c.out.report(slotRef{uint64(refs[0].id), refs[0].gen})
	c.out.report(slotRef{1 << 40, 7})
	mustPut(t, c, testChain("b", 1)...) // notices travel in order
	until(t, "both known", func() bool { return stats(t, d).Sealed == 2 })
	if n := c.Match(keysOf(testChain("a", 1))); n != 1 {
		t.Fatal("a false report removed a block")
	}
}

func TestWriterThatReturnsUnderItsNameEndsItsEarlierLife(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	w := startChild(t, "client", dir, "w", 0)
	w.ask("half <nil>", "half b 3")
	w.kill()
	again := startChild(t, "client", dir, "w", 0)
	until(t, "one client without old reservations", func() bool { s := stats(t, d); return s.Clients == 1 && s.Reserved <= 1 })
	again.ask("put <nil>", "put a 3")
	checkTier(t, d)
}

func TestSecondOwnersAreRefused(t *testing.T) {
	dir := shortDir(t)
	startDaemon(t, dir, 1<<20)
	if _, err := NewDaemon(Config{Dir: dir, Bytes: 1 << 20}); !errors.Is(err, ErrBusy) {
		t.Errorf("second daemon: %v, want ErrBusy", err)
	}
	attach(t, dir, "w")
	_, err := Attach(t.Context(), Options{Dir: dir, Writer: "w", Pool: testPool, BlockBytes: testBlock})
	if !errors.Is(err, ErrBusy) {
		t.Errorf("second client of one id: %v, want ErrBusy", err)
	}
}

// Complaint 34 of the facts: a stopped daemon costs bounded time, never a hang,
// and what it answers late is given back.
func TestStoppedDaemonIsBoundedTime(t *testing.T) {
	dir := shortDir(t)
	const size = 1 << 20
	d := startChild(t, "daemon", dir, "", size)
	c := attach(t, dir, "w", func(o *Options) { o.Wait, o.Cache = 30*time.Millisecond, -1 })
	blocks := testChain("a", 3)
	storePatiently(t, dir, blocks...)
	d.signal(syscall.SIGSTOP)
	until(t, "the stop has come into force", func() bool {
		slots, err := c.Reserve(t.Context(), 1)
		c.Abandon(slots)
		return err != nil
	})
	for range 3 {
		if _, err := c.Reserve(t.Context(), 2); !errors.Is(err, ErrFull) && !errors.Is(err, ErrDown) {
			t.Fatalf("reserve from a stopped daemon: %v", err)
		}
	}
	if n := c.Match(keysOf(blocks)); n != 3 {
		t.Fatalf("%d of 3 blocks can be read", n)
	}
	d.signal(syscall.SIGCONT)
	until(t, "it serves again", func() bool { _, err := put(c, testChain("b", 1)[0]); return err == nil })
	d.kill()
	last := startDaemon(t, dir, size)
	until(t, "nothing stays reserved", func() bool { return c.Connected() && stats(t, last).Reserved == 0 })
	checkTier(t, last)
}

// Several processes churn a pool that is far too small; some are killed, and the
// daemon too. Every byte served is the byte sealed, and nothing leaks.
func TestChurnOfProcesses(t *testing.T) {
	dir := shortDir(t)
	const size = 1 << 20
	d := startChild(t, "daemon", dir, "", size)
	var clients []*child
	for i := range 5 {
		clients = append(clients, startChild(t, "client", dir, fmt.Sprint("w", i), 0))
	}
	for i, c := range clients {
		c.tell("churn s%d 120", i)
	}
	clients[0].kill()
	d.kill()
	d = startChild(t, "daemon", dir, "", size)
	clients[1].kill()
	for _, c := range clients[2:] {
		if got := c.line(); !strings.HasPrefix(got, "churn ok") {
			t.Errorf("%s", got)
		}
		c.kill()
	}
	d.kill()
	last := startDaemon(t, dir, size)
	s := stats(t, last)
	if s.Reserved != 0 || s.Leased != 0 || s.Free+s.Sealed != s.Total {
		t.Errorf("after all clients ended: %+v", s)
	}
	checkTier(t, last)
}
