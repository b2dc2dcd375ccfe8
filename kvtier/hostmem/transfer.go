package hostmem

import (
	"slices"

	"github.com/weir-dev/weir/kvtier"
)

// What a transfer to another memory needs beside reading and writing: the checksum
// that was made when the block was sealed travels with it, so that its bytes are
// checked from the first writer to the last reader.

// Pool is the name of the pool that this client joined.
func (c *Client) Pool() string { return c.opt.Pool }

// Describe returns what is known of a leased block, and the crc32c (Castagnoli) of
// the bytes that were sealed. ok is false when the slot holds another block.
func (c *Client) Describe(r Ref) (b kvtier.Block, crc uint32, ok bool) {
	if !c.use() {
		return kvtier.Block{}, 0, false
	}
	defer c.life.RUnlock()
	if int64(r.id) >= c.slots {
		return kvtier.Block{}, 0, false
	}
	s := c.slot(r.id)
	w := s.word().Load()
	crc = s.crc().Load()
	b, ok = s.block(w)
	return b, crc, ok && c.valid(r) && b.Key == r.Key
}

// SealSum is Seal for a writer that knows the crc32c (Castagnoli) of the bytes in the
// slot. Readers find a block that was sealed with a wrong sum corrupt.
func (c *Client) SealSum(s Slot, b kvtier.Block, crc uint32) (duplicate bool, err error) {
	return c.seal(s, b, func() uint32 { return crc })
}

// dismiss ends the guests of a pool that goes. They find it refused when they connect
// again; what they have mapped stays readable until they close.
func (p *pool) dismiss() {
	for _, w := range p.writers {
		if w != nil && w.conn != nil {
			w.conn.pool, w.conn.writer = nil, nil // what it still sends is not obeyed
			_ = w.conn.nc.Close()
			w.conn = nil
		}
	}
}

// has tells whether the daemon serves a pool.
func (d *Daemon) has(name string, block int64) bool {
	return slices.ContainsFunc(d.pools, func(p *pool) bool { return p.pool == name && p.block == block })
}
