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
