package hostmem

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/weir-dev/weir/kvtier"
)

// ErrInUse: blocks that were to be erased are read at this moment. Ask again.
var ErrInUse = errors.New("hostmem: blocks are in use")

// Erase removes the blocks that keys name, all that follow them, and the blocks
// before them as far as no other chain needs them, and overwrites their bytes with
// zeros. It also overwrites the bytes of such blocks that were evicted and whose
// slot has not been used since, and of those on disk. Keys are the ends of chains; one
// that is not there is followed upwards as far as the daemon remembers it.
//
// A block that is leased stays, with those before it, and the error wraps ErrInUse:
// ask again when its reader is done. What remains unseen: bytes in slots that a
// writer has reserved and not yet filled, until it fills or returns them.
//
// Each call looks at every slot once per pool: some 10 ms per 100,000 blocks, in
// which no slot is given out.
func (d *Daemon) Erase(keys []kvtier.Key) (removed int, err error) {
	left := 0
	var disk func() (int, error)
	if cerr := d.call(func() { removed, left, disk = d.erase(keys) }); cerr != nil {
		return 0, cerr
	}
	if disk != nil {
		n, err := disk()
		if removed += n; err != nil {
			return removed, err
		}
	}
	return removed, inUse(left)
}

func inUse(left int) error {
	if left == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d that were to be erased are read", ErrInUse, left)
}

// erase does so in memory. What is to be done on disk is returned, to be called outside
// of the loop; nil without a disk.
func (d *Daemon) erase(keys []kvtier.Key) (removed, left int, disk func() (int, error)) {
	disk = d.eraseDisk(keys)
	for _, p := range d.pools {
		for _, w := range p.writers {
			if w != nil {
				p.settle(w.no, false, nil) // blocks whose notice is still under way
			}
		}
	}
	for _, p := range d.pools {
		r, l := p.eraseBelow(keys)
		removed, left = removed+r, left+l
	}
	for _, k := range keys {
		r, l := d.eraseAbove(k)
		removed, left = removed+r, left+l
	}
	return removed, left, disk
}

// eraseBelow removes the blocks that follow keys, last ones first, but not keys.
func (p *pool) eraseBelow(keys []kvtier.Key) (removed, left int) {
	doomed := make(map[kvtier.Key]bool, len(keys))
	for _, k := range keys {
		doomed[k] = true
	}
	blocks := p.slots.Blocks(make([]kvtier.Block, 0, p.slots.Counts().Sealed))
	sortBlocks(blocks) // parents come before their children
	below := blocks[:0]
	for _, b := range blocks {
		if b.Index > 0 && doomed[b.Parent] {
			doomed[b.Key] = true
			below = append(below, b)
		}
	}
	for i := len(below) - 1; i >= 0; i-- {
		if id, ok := p.slots.Find(below[i].Key); ok && p.eraseLeaf(id) {
			removed++
		} else if ok {
			left++
		}
	}
	return removed, left
}

// eraseAbove removes the block k and its ancestors, up to the first one that other
// blocks follow.
func (d *Daemon) eraseAbove(k kvtier.Key) (removed, left int) {
	most := len(d.graves.ring)
	for _, p := range d.pools {
		most += p.slots.Counts().Sealed
	}
	for range most { // a client that lies about parents could have made a circle
		p, id, ok := d.locate(k)
		if !ok {
			e := d.graves.find(k)
			if e == nil {
				return removed, left
			}
			e.wipe()
			k = e.parent
			continue
		}
		b, _ := p.slots.Get(id)
		if !p.slots.Leaf(id) {
			return removed, left
		}
		if !p.eraseLeaf(id) {
			return removed, left + 1
		}
		removed++
		if b.Index == 0 {
			return removed, left
		}
		k = b.Parent
	}
	return removed, left
}

func (d *Daemon) locate(k kvtier.Key) (*pool, kvtier.SlotID, bool) {
	for _, p := range d.pools {
		if id, ok := p.slots.Find(k); ok {
			return p, id, true
		}
	}
	return nil, 0, false
}

// eraseLeaf removes a block without children and overwrites it. A leased one, or
// one with children that stay, stays.
func (p *pool) eraseLeaf(id kvtier.SlotID) bool {
	s := p.slot(uint32(id))
	_, gen := p.slots.State(id)
	if !p.slots.Leaf(id) || !s.word().CompareAndSwap(word(gen, stSealed), word(gen, stEvicting)) {
		return false
	}
	if p.leases(uint32(id)).Load() != 0 { // see evict
		s.word().Store(word(gen, stSealed))
		return false
	}
	clear(p.bytes(uint32(id)))
	p.remove(id, RuleErased)
	return true
}

// wipe overwrites what an evicted block left in its slot, unless the slot has been
// given out again, and remembers that it was erased.
func (e *grave) wipe() {
	e.rule = RuleErased
	if e.pool == nil {
		return
	}
	if state, gen := e.pool.slots.State(kvtier.SlotID(e.slot)); state == kvtier.SlotFree && gen == e.gen {
		clear(e.pool.bytes(e.slot))
	}
}

// keysFromHex reads the keys of a message; bad ones are left out.
func keysFromHex(text []string) []kvtier.Key {
	keys := make([]kvtier.Key, 0, len(text))
	for _, s := range text {
		if k, ok := keyFromHex(s); ok {
			keys = append(keys, k)
		}
	}
	return keys
}

func keyFromHex(s string) (k kvtier.Key, ok bool) {
	n, err := hex.Decode(k[:], []byte(s[:min(len(s), 2*len(k))]))
	return k, err == nil && n == len(k) && len(s) == 2*len(k)
}
