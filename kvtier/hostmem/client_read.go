package hostmem

import "github.com/weir-dev/weir/kvtier"

// Match returns how many of keys, from the first on, are sealed: the longest
// resident prefix. It takes no lock, needs no daemon, and neither leases nor
// touches what it finds, so probing cannot keep blocks in memory.
func (c *Client) Match(keys []kvtier.Key) int {
	if !c.use() {
		return 0
	}
	defer c.life.RUnlock()
	for i := range keys {
		if i%lookAhead == 0 {
			c.fetch(keys[i:])
		}
		if _, _, ok := c.find(&keys[i]); !ok {
			return i
		}
	}
	return len(keys)
}

// Lease pins the longest resident prefix of keys and returns one Ref per block:
// they are not evicted until Release, or until this process ends. It counts as a
// use.
func (c *Client) Lease(keys []kvtier.Key) []Ref {
	if !c.use() {
		return nil
	}
	defer c.life.RUnlock()
	now := c.opt.Now()
	refs := make([]Ref, 0, len(keys))
	c.leaseMu.Lock()
	defer c.leaseMu.Unlock()
	for i := range keys {
		if i%lookAhead == 0 {
			c.fetch(keys[i:])
		}
		id, w, ok := c.find(&keys[i])
		if !ok {
			break
		}
		s := c.slot(id)
		if c.leases[id] == 0 {
			c.arena.leases(id).Or(c.bit)
		}
		c.leases[id]++
		if s.word().Load() != w { // evicted between find and the bit
			c.unlease(id)
			break
		}
		touch(s.use(), now)
		refs = append(refs, Ref{Key: keys[i], id: id, gen: wordGen(w)})
	}
	return refs
}

// unlease takes one lease back; leaseMu is held.
func (c *Client) unlease(id uint32) {
	if c.leases[id] == 0 {
		return
	}
	if c.leases[id]--; c.leases[id] == 0 {
		c.arena.leases(id).And(^c.bit)
	}
}

// Release ends leases. Refs must not be used afterwards.
func (c *Client) Release(refs []Ref) {
	if len(refs) == 0 || !c.use() {
		return
	}
	defer c.life.RUnlock()
	c.leaseMu.Lock()
	for _, r := range refs {
		if int64(r.id) < c.slots {
			c.unlease(r.id)
		}
	}
	c.leaseMu.Unlock()
	if c.underPressure() {
		c.out.poke()
	}
}

// Data is the block's memory, to be read in place. Check Valid after reading:
// only then are the bytes known to be those that were sealed. It is nil once the
// client is closed.
func (c *Client) Data(r Ref) []byte {
	if !c.use() {
		return nil
	}
	defer c.life.RUnlock()
	if int64(r.id) >= c.slots {
		return nil
	}
	return c.bytes(r.id)
}

// Valid reports whether the slot still holds the block of r: its generation and key
// have not changed. While r is leased it does not, unless the block was found corrupt.
func (c *Client) Valid(r Ref) bool {
	if !c.use() {
		return false
	}
	defer c.life.RUnlock()
	return c.valid(r)
}

func (c *Client) valid(r Ref) bool {
	if int64(r.id) >= c.slots {
		return false
	}
	s := c.slot(r.id)
	w := s.word().Load()
	// While the daemon looks whether it may evict, the bytes are still there. The key is
	// looked at too: a damaged word could look like another generation.
	kw := toWords(&r.Key)
	return wordGen(w) == r.gen && (wordState(w) == stSealed || wordState(w) == stEvicting) && s.keyIs(&kw)
}

// Verify compares the block's bytes with the checksum that its writer left. A
// block that fails is reported to the daemon, which checks too and removes it.
func (c *Client) Verify(r Ref) bool {
	if !c.use() {
		return false
	}
	defer c.life.RUnlock()
	return int64(r.id) < c.slots && c.verify(r, c.bytes(r.id))
}

func (c *Client) verify(r Ref, data []byte) bool {
	return c.matches(r, checksum(data))
}

// matches tells whether the bytes whose checksum is got are those of r.
func (c *Client) matches(r Ref, got uint32) bool {
	want := c.slot(r.id).crc().Load()
	if !c.valid(r) {
		return false
	}
	if got != want {
		c.out.report(slotRef{uint64(r.id), r.gen})
		return false
	}
	return true
}

// Copy copies the block into dst (BlockBytes long) and checks it: true means dst
// holds exactly what was sealed.
func (c *Client) Copy(r Ref, dst []byte) bool {
	if int64(len(dst)) != c.block || !c.use() {
		return false
	}
	defer c.life.RUnlock()
	if int64(r.id) >= c.slots {
		return false
	}
	return c.matches(r, copySum(dst, c.bytes(r.id)))
}

// Block returns what is known of a sealed block: its parent, its index in the
// chain, and which phase computed it.
func (c *Client) Block(key kvtier.Key) (kvtier.Block, bool) {
	if !c.use() {
		return kvtier.Block{}, false
	}
	defer c.life.RUnlock()
	id, w, ok := c.find(&key)
	if !ok {
		return kvtier.Block{}, false
	}
	b, ok := c.slot(id).block(w)
	return b, ok
}

// Parent returns the key before key and key's own index, to walk a chain from
// its end when only the last key is known. The parent of index 0 is the spec's
// root, which is no block.
func (c *Client) Parent(key kvtier.Key) (parent kvtier.Key, index int, ok bool) {
	b, ok := c.Block(key)
	return b.Parent, b.Index, ok
}
