package hostmem

import (
	"errors"
	"hash/crc32"
	"testing"

	"github.com/weir-dev/weir/kvtier"
)

// A client that wants an existing pool makes none.
func TestExistingPoolOnly(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	_, err := Attach(t.Context(), Options{Dir: dir, Writer: "guest", Pool: testPool, BlockBytes: testBlock, Existing: true})
	if !errors.Is(err, ErrRefused) {
		t.Fatalf("joining a pool that is not there: %v", err)
	}
	if all, _ := d.Stats(); len(all) != 0 {
		t.Fatalf("%d pools were made", len(all))
	}
	attach(t, dir, "owner")
	guest := attach(t, dir, "guest", func(o *Options) { o.Existing = true })
	if guest.Pool() != testPool {
		t.Fatalf("joined %q", guest.Pool())
	}
}

// What leaves one slot with its description enters another with the same checksum, and
// a wrong one does not pass as right.
func TestDescribeAndSealSum(t *testing.T) {
	dir := shortDir(t)
	startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	chain := testChain("a", 3)
	mustPut(t, c, chain...)
	refs := c.Lease(keysOf(chain))
	for i, r := range refs {
		b, crc, ok := c.Describe(r)
		if !ok || b != chain[i] || crc != crc32.Checksum(c.Data(r), castTable) {
			t.Fatalf("block %d is described as %+v, checksum %08x, %v", i, b, crc, ok)
		}
	}
	c.Release(refs)
	copies := testChain("b", 2)
	for i, wrong := range []uint32{0, 1} {
		slots, err := c.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		crc := crc32.Checksum(slots[0].Data(), castTable)
		if dup, err := c.SealSum(slots[0], copies[i], crc^wrong); dup || err != nil {
			t.Fatalf("sealed: %v, %v", dup, err)
		}
		refs := c.Lease([]kvtier.Key{copies[i].Key})
		if got := c.Verify(refs[0]); got != (wrong == 0) {
			t.Fatalf("a block with checksum off by %d is right: %v", wrong, got)
		}
		c.Release(refs)
	}
}

// A pool whose only client is a guest gives way to another one. The guest notices, and
// what it reads until it closes are not the new pool's bytes.
func TestGuestGivesWay(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	owner := attach(t, dir, "owner")
	chain := testChain("a", 5)
	mustPut(t, owner, chain...)
	guest := attach(t, dir, "guest", func(o *Options) { o.Existing = true })
	refs := guest.Lease(keysOf(chain))
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	next := attach(t, dir, "next", func(o *Options) { o.Pool = "another" })
	mustPut(t, next, testChain("b", next.Capacity())...)
	for _, r := range refs {
		if !hasPattern(guest.Data(r), r.Key) {
			t.Error("a guest reads another pool's bytes")
		}
	}
	guest.Release(refs)
	until(t, "the guest notices", func() bool { return errors.Is(guest.Err(), ErrRefused) })
	if err := guest.Close(); err != nil {
		t.Error(err)
	}
	if all, _ := d.Stats(); len(all) != 1 || all[0].Pool != "another" {
		t.Errorf("pools %+v", all)
	}
	// Whoever reads the events learns that nothing of it is there any more.
	last := map[string]kvtier.Event{}
	until(t, "both pools were told of", func() bool {
		select {
		case b := <-d.Events():
			last[b.Pool] = b.Events[len(b.Events)-1]
		default:
		}
		return last[testPool].Kind == kvtier.EventCleared && last["another"].Kind == kvtier.EventStored
	})
	checkTier(t, d)
}
