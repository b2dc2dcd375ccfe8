package hostmem

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-dev/weir/kvtier"
)

// ErrInUse: blocks that were to be erased are read at this moment. Ask again.
var ErrInUse = errors.New("hostmem: blocks are in use")

// Erase removes the blocks that keys name, all that follow them, and the blocks
// before them as far as no other chain needs them, and overwrites their bytes with
// zeros. It also overwrites the bytes of such blocks that were evicted and whose
// slot has not been used since, of those on disk, and whatever else was left in free
// slots and cannot be told to be of other blocks. Keys are the ends of chains; one
// that is not there is followed upwards as far as the daemon remembers it.
//
// A block that is leased stays, with those before it, and the error wraps ErrInUse:
// ask again when its reader is done. What remains unseen: bytes in slots that a
// writer has reserved and not yet filled, until it fills them or they are overwritten
// when it returns them.
//
// It is done in steps, between which the daemon does other work.
func (d *Daemon) Erase(keys []kvtier.Key) (removed int, err error) {
	removed, left, err := d.erase(keys)
	if err != nil {
		return removed, err
	}
	return removed, inUse(left)
}

func inUse(left int) error {
	if left == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d that were to be erased are read", ErrInUse, left)
}

const (
	// A step of erasing overwrites at most that much, which takes some milliseconds.
	stepBlocks = 256
	stepBytes  = 16 << 20
	// eraseRounds bounds how often blocks that were sealed meanwhile are looked for.
	eraseRounds = 4
)

// step counts what one step may still overwrite.
type step struct{ blocks, bytes int64 }

func newStep() *step { return &step{stepBlocks, stepBytes} }

// take tells whether a block may be overwritten in this step; the first always may.
func (s *step) take(p *pool) bool {
	if s.blocks == 0 || s.bytes <= 0 {
		return false
	}
	s.blocks, s.bytes = s.blocks-1, s.bytes-p.block
	return true
}

// erase runs outside of the loop and enters it for each step. What is on disk comes
// last: memory, which knows the chains, is asked for them first.
func (d *Daemon) erase(keys []kvtier.Key) (removed, left int, err error) {
	var pools []*pool
	var disk func() (int, error)
	err = d.call(func() {
		pools = slices.Clone(d.pools)
		for _, p := range d.pools {
			for _, w := range p.writers {
				if w != nil {
					p.settle(w.no, false, nil) // blocks whose notice is still under way
				}
			}
			p.askBack()
		}
	})
	if err == nil {
		disk, err = d.eraseDisk(keys)
	}
	for round := 0; round < eraseRounds && err == nil; round++ {
		var r int
		if r, left, err = d.eraseBelow(keys); r == 0 {
			break
		}
		removed += r
	}
	for i := 0; i < len(keys) && err == nil; i++ {
		for w, more := (ascent{key: keys[i]}), true; more && err == nil; {
			err = d.call(func() {
				more = d.eraseAbove(&w, newStep())
			})
			if !more {
				removed, left = removed+w.removed, left+w.left
			}
		}
	}
	for _, p := range pools {
		for at := 0; at >= 0 && err == nil; {
			err = d.call(func() {
				next := -1
				if slices.Contains(d.pools, p) { // else its file went meanwhile
					next = p.wipeLeft(at, newStep())
				}
				at = next
			})
		}
	}
	if disk != nil && err == nil {
		var n int
		n, err = disk()
		removed += n
	}
	return removed, left, err
}

// doomed is a block that is to be erased.
type doomed struct {
	pool *pool
	key  kvtier.Key
}

// eraseBelow removes the blocks that follow keys, last ones first, but not keys.
func (d *Daemon) eraseBelow(keys []kvtier.Key) (removed, left int, err error) {
	var below []doomed
	err = d.call(func() { below = d.below(keys) })
	for len(below) > 0 && err == nil {
		err = d.call(func() {
			for s := newStep(); len(below) > 0 && s.take(below[len(below)-1].pool); below = below[:len(below)-1] {
				e := below[len(below)-1]
				if id, ok := e.pool.slots.Find(e.key); !ok || !slices.Contains(d.pools, e.pool) {
					continue
				} else if e.pool.eraseLeaf(id) {
					removed++
				} else {
					left++
				}
			}
		})
	}
	return removed, left, err
}

// below lists what follows keys, parents before their children, and each block once.
func (d *Daemon) below(keys []kvtier.Key) (out []doomed) {
	for _, p := range d.pools {
		seen := map[kvtier.SlotID]bool{}
		var ids []kvtier.SlotID
		for _, k := range keys {
			ids = p.slots.Below(k, ids[:0])
			for _, id := range ids {
				if !seen[id] {
					seen[id] = true
					b, _ := p.slots.Get(id)
					out = append(out, doomed{p, b.Key})
				}
			}
		}
	}
	return out
}

// ascent is a walk from the end of a chain towards its root.
type ascent struct {
	key           kvtier.Key // the next block
	steps         int
	removed, left int
}

// eraseAbove removes a block and its ancestors, up to the first one that other blocks
// follow. more tells that the step ended before that.
func (d *Daemon) eraseAbove(a *ascent, s *step) (more bool) {
	most := len(d.graves.ring)
	for _, p := range d.pools {
		most += p.slots.Counts().Total
	}
	for range stepBlocks {
		if a.steps++; a.steps > most { // a client that lied about parents has made a circle
			return false
		}
		p, id, ok := d.locate(a.key)
		if !ok {
			e := d.graves.find(a.key)
			if e == nil {
				return false
			}
			e.wipe()
			a.key = e.parent
			continue
		}
		b, _ := p.slots.Get(id)
		if !p.slots.Leaf(id) {
			return false
		}
		if !s.take(p) {
			return true
		}
		if !p.eraseLeaf(id) {
			a.left++
			return false
		}
		a.removed++
		if b.Index == 0 {
			return false
		}
		a.key = b.Parent
	}
	return true
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
