package hostmem

import (
	"encoding/hex"
	"slices"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// later hands work that waits for the disk to its goroutine; false when it has enough.
func (d *Daemon) later(f func()) bool {
	select {
	case d.spill.tasks <- f:
		return true
	default:
		return false
	}
}

// answerDisk says where blocks of the client's pool lie on disk.
func (d *Daemon) answerDisk(c *conn, m message) {
	out := message{Op: opPlaces, ID: m.ID}
	keys := keysFromHex(m.Keys)
	if len(keys) != len(m.Keys) || len(keys) > diskKeys {
		_ = c.nc.Close() // no client of ours sends this
		return
	}
	if d.spill != nil {
		out.File = d.cfg.Disk
		for i, pl := range d.spill.store.Find(c.pool.pool, c.pool.block, keys) {
			if pl.Segment != "" {
				out.Places = append(out.Places, place{Key: i, Seg: pl.Segment, At: pl.Slot, Gen: pl.Gen})
			}
		}
	}
	c.send(out)
}

// answerTrail names the blocks before one.
func (d *Daemon) answerTrail(c *conn, m message) {
	k, ok := keyFromHex(firstOf(m.Keys))
	if !ok || m.N < 0 {
		_ = c.nc.Close() // no client of ours sends this
		return
	}
	out := message{Op: opTrail, ID: m.ID}
	if trail := d.trail(k, min(m.N, diskKeys)+1); len(trail) > 0 {
		for _, k := range trail[1:] {
			out.Keys = append(out.Keys, hex.EncodeToString(k[:]))
		}
	}
	c.send(out)
}

// trail lists the keys of the chain that ends with k, last first and k included, as far
// as memory, disk and what is remembered tell, and at most so many. It may end with the
// root of the chain, which is no block.
func (d *Daemon) trail(k kvtier.Key, most int) (keys []kvtier.Key) {
	for range most {
		keys = append(keys, k)
		var b kvtier.Block
		p, id, ok := d.locate(k)
		if ok {
			b, _ = p.slots.Get(id)
		} else if d.spill != nil {
			b, ok = d.spill.store.Parent(k)
		}
		e := d.graves.find(k)
		switch {
		case ok && b.Index == 0:
			return keys
		case ok:
			k = b.Parent
		case e != nil:
			k = e.parent
		default:
			return keys
		}
	}
	return keys
}

// checkDisk looks at blocks that a reader found corrupt. Reports beyond what the disk's
// goroutine takes are dropped: the block is reported again when it is read again.
func (d *Daemon) checkDisk(p *pool, keys []kvtier.Key) {
	if d.spill == nil {
		return
	}
	pool, block := p.pool, p.block
	d.later(func() {
		for _, k := range keys {
			if _, err := d.spill.store.Check(pool, block, k); err != nil {
				d.cfg.Logger.Warn("a corrupt block on the KV disk was not overwritten", "key", k.Short(), "error", err)
			}
		}
	})
}

const (
	// trailMost bounds the chains of one erase, should a client have lied about one: 64 M
	// tokens fit.
	trailMost = 1 << 20
	// trailStep is how much of a chain is followed in one step: about a millisecond.
	trailStep = 1 << 12
)

// trails lists the chains that end with ends, in steps. Where two of them meet, what is
// before that stands with the later one in the result only, so that a block is listed
// once and comes after all blocks that follow it.
func (d *Daemon) trails(ends []kvtier.Key) (chains [][]kvtier.Key, err error) {
	seen := map[kvtier.Key]bool{}
	for _, k := range ends {
		chain, last, met := []kvtier.Key{}, k, seen[k]
		for n, from := trailStep, 0; !met && n == trailStep && len(seen) < trailMost && err == nil; from = 1 {
			err = d.call(func() {
				more := d.trail(last, trailStep+from)[from:]
				for n = 0; n < len(more) && !met; n++ {
					if met = seen[more[n]]; !met {
						seen[more[n]] = true
						chain, last = append(chain, more[n]), more[n]
					}
				}
			})
		}
		chains = append(chains, chain)
	}
	slices.Reverse(chains)
	return chains, err
}

// eraseDisk prepares the erasing of chains on disk, before they are erased in memory,
// which still knows their blocks. Blocks that were erased from memory too are not counted.
func (d *Daemon) eraseDisk(ends []kvtier.Key) (erase func() (int, error), err error) {
	if d.spill == nil {
		return nil, nil
	}
	d.spill.epoch.Add(1)
	began := time.Now().UnixNano()
	chains, err := d.trails(ends)
	if err == nil {
		// The disk may hold what follows an end without what is between: memory knows that.
		var below []doomed
		err = d.call(func() { below = d.below(ends) })
		follow, all := make([][]kvtier.Key, 0, len(below)+len(chains)), slices.Clone(ends)
		for _, b := range slices.Backward(below) {
			follow = append(follow, []kvtier.Key{b.key})
			all = append(all, b.key)
		}
		chains, ends = append(follow, chains...), all
	}
	return func() (n int, err error) {
		// Memory has none of it any more: what was copied meanwhile is not written, and
		// what was written is found.
		d.spill.epoch.Add(1)
		dropped, err := d.spill.store.Erase(ends, chains, d.resident)
		cerr := d.call(func() {
			d.notice(kvtier.EventDropped, dropped)
			for _, b := range dropped {
				if e := d.graves.find(b.Key); e == nil || e.rule != RuleErased || e.at < began {
					n++
				}
			}
		})
		if err == nil {
			err = cerr
		}
		return n, err
	}, err
}

// resident tells whether memory holds a block; true when nobody can say.
func (d *Daemon) resident(k kvtier.Key) (yes bool) {
	if d.call(func() { _, _, yes = d.locate(k) }) != nil {
		return true
	}
	return yes
}
