package hostmem

import (
	"testing"

	"github.com/weir-dev/weir/kvtier"
)

// TestFlippedHeaderBits flips each bit of a slot's header and of its leases in turn.
// Readers get the block as it was sealed, or nothing; never another description, key
// or bytes.
func TestFlippedHeaderBits(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 3)
	blocks[1].Origin = kvtier.OriginDecode
	mustPut(t, c, blocks...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 3 })
	b := blocks[1]
	id, _, _ := c.find(&b.Key)
	h := c.slot(id)
	served, buf := 0, make([]byte, testBlock)
	held := c.Lease([]kvtier.Key{b.Key})
	for bit := range 8 * (slotBytes + leaseBytes) {
		at := &c.mem[h.off+int64(bit/8)]
		if bit >= 8*slotBytes {
			at = &c.mem[offLeases+int64(id)*leaseBytes+int64(bit/8-slotBytes)]
		}
		*at ^= 1 << (bit % 8)
		if got, ok := c.Block(b.Key); ok && got != b {
			t.Errorf("bit %d: described as %+v", bit, got)
		}
		if parent, index, ok := c.Parent(b.Key); ok && (parent != b.Parent || index != 1) {
			t.Errorf("bit %d: parent %s, index %d", bit, parent.Short(), index)
		}
		refs := c.Lease([]kvtier.Key{b.Key})
		for _, r := range append(refs, held...) {
			if c.Copy(r, buf) {
				served++
				if !hasPattern(buf, b.Key) {
					t.Errorf("bit %d: other bytes are served", bit)
				}
			}
			if got, _, ok := c.Describe(r); ok && got != b {
				t.Errorf("bit %d: a reference is described as %+v", bit, got)
			}
		}
		*at ^= 1 << (bit % 8)
		c.Release(refs)
	}
	if served == 0 || served == 16*(slotBytes+leaseBytes) {
		t.Errorf("%d times served: the test shows nothing", served)
	}
	c.Release(held)
	until(t, "reports were looked at", func() bool { return c.Match(keysOf(blocks)) == 3 || stats(t, d).Corrupt > 0 })
}

// TestFlippedHeaderBitsAtARestart: a daemon that starts over a damaged header drops
// the block or has it right; what follows stays.
func TestFlippedHeaderBitsAtARestart(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w")
	blocks := testChain("a", 3)
	kept := 0
	for bit := 0; bit < 8*slotBytes; bit += 13 {
		for _, b := range blocks {
			if c.Match([]kvtier.Key{b.Key}) == 0 {
				mustPut(t, c, b)
			}
		}
		until(t, "known", func() bool { return stats(t, d).Sealed == 3 })
		id, _, _ := c.find(&blocks[1].Key)
		h := c.slot(id)
		_ = d.Close()
		c.mem[h.off+int64(bit/8)] ^= 1 << (bit % 8)
		d = startDaemon(t, dir, 1<<20)
		until(t, "connected", c.Connected)
		checkTier(t, d)
		if got, ok := c.Block(blocks[1].Key); ok {
			kept++
			if got != blocks[1] {
				t.Errorf("bit %d: described as %+v", bit, got)
			}
		}
		if _, n := load(c, blocks[:1]); n != 1 {
			t.Errorf("bit %d: another block is lost", bit)
		}
		if _, n := load(c, blocks[2:]); n != 1 {
			t.Errorf("bit %d: the block behind it is lost", bit)
		}
	}
	if kept == 0 {
		t.Error("no flip left the block in place: the test shows nothing")
	}
}
