package hostmem

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/disk"
)

const (
	// diskKeys is the number of keys in one question about the disk: its answer stays
	// below maxLine.
	diskKeys = 512
	// A group of blocks is read at once, by so many goroutines.
	groupBytes  = 16 << 20
	groupBlocks = 32
	diskReaders = 4
	// diskWait bounds the daemon's answer: it only looks at a table.
	diskWait = time.Second
)

// HasDisk tells whether there was a disk below the memory when this client attached.
func (c *Client) HasDisk() bool { return c.disk }

// Fetch brings those of keys into memory that lie on the daemon's disk. keys are a chain
// from its first block on; it stops at the first that is neither in memory nor on disk,
// when there is no room, or when ctx ends. What is in memory of the chain stays there
// meanwhile. The error says why it ended early; brought counts what came even so. Every
// block is checked against the checksum that it was sealed with.
func (c *Client) Fetch(ctx context.Context, keys []kvtier.Key) (brought int, err error) {
	if !c.Connected() {
		return 0, nil
	}
	var pinned []Ref
	var reader *disk.Reader
	defer func() {
		c.Release(pinned)
		if reader != nil {
			_ = reader.Close() // only read
		}
	}()
	for len(keys) > 0 {
		refs := c.Lease(keys)
		pinned, keys = append(pinned, refs...), keys[len(refs):]
		if len(keys) == 0 {
			break
		}
		ask := keys[:min(len(keys), diskKeys)]
		dir, places, err := c.places(ctx, ask)
		if err != nil || len(places) == 0 || places[0].Segment == "" {
			return brought, err
		}
		if reader == nil {
			reader = disk.NewReader(dir)
		}
		n, refs, err := c.bring(ctx, reader, ask, places)
		brought += n
		pinned, keys = append(pinned, refs...), keys[len(refs):]
		if err != nil || n == 0 {
			return brought, err
		}
	}
	return brought, nil
}

// places asks where blocks lie on disk. The result has one entry per key, the zero Place
// for one that is not there; it is empty without a disk.
func (c *Client) places(ctx context.Context, keys []kvtier.Key) (dir string, out []disk.Place, err error) {
	text := make([]string, len(keys))
	for i, k := range keys {
		text[i] = hex.EncodeToString(k[:])
	}
	ctx, cancel := context.WithTimeout(ctx, diskWait)
	defer cancel()
	m, err := c.out.query(ctx, message{Op: opDisk, Keys: text})
	if err != nil {
		return "", nil, fmt.Errorf("asking for %d blocks on disk: %w", len(keys), err)
	}
	if m.Op != opPlaces || m.File == "" {
		return "", nil, nil
	}
	out = make([]disk.Place, len(keys))
	for _, pl := range m.Places {
		if pl.Key >= 0 && pl.Key < len(out) {
			out[pl.Key] = disk.Place{Segment: pl.Seg, Slot: pl.At, Gen: pl.Gen}
		}
	}
	return m.File, out, nil
}

// bring reads the first blocks of a chain, as far as their places are known, in groups.
// It returns how many were read, and leases on all that are then in memory.
func (c *Client) bring(ctx context.Context, r *disk.Reader, keys []kvtier.Key, places []disk.Place) (brought int, held []Ref, err error) {
	group := int(max(1, min(groupBytes/c.block, groupBlocks)))
	for at := 0; at < len(keys) && places[at].Segment != ""; {
		end := at
		for end < len(keys) && end < at+group && places[end].Segment != "" {
			end++
		}
		n, err := c.bringGroup(ctx, r, keys[at:end], places[at:end])
		brought += n
		refs := c.Lease(keys[at:end])
		held = append(held, refs...)
		if at += len(refs); err != nil || at < end {
			return brought, held, err
		}
	}
	return brought, held, nil
}

// bringGroup reads blocks side by side and seals them in order, up to the first that
// could not be read.
func (c *Client) bringGroup(ctx context.Context, r *disk.Reader, keys []kvtier.Key, places []disk.Place) (n int, err error) {
	slots, err := c.Reserve(ctx, len(keys))
	if err != nil {
		return 0, err
	}
	res := c.readAll(ctx, r, keys, places, slots)
	for i := range res {
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(res[i].err, disk.ErrNotThere): // given to another block meanwhile
			c.Abandon(slots[i:])
			return n, nil
		case errors.Is(res[i].err, disk.ErrCorrupt):
			c.out.badOnDisk(keys[i])
			err = res[i].err
		case res[i].err != nil:
			err = res[i].err
		default:
			_, err = c.SealSum(slots[i], res[i].b, res[i].crc)
		}
		if err != nil {
			c.Abandon(slots[i:])
			return n, err
		}
		n++
	}
	return n, nil
}

// fromDisk is what became of one read.
type fromDisk struct {
	b   kvtier.Block
	crc uint32
	err error
}

// readAll reads blocks into slots, several at a time.
func (c *Client) readAll(ctx context.Context, r *disk.Reader, keys []kvtier.Key, places []disk.Place, slots []Slot) []fromDisk {
	res := make([]fromDisk, len(keys))
	if !c.use() {
		for i := range res {
			res[i].err = ErrClosed
		}
		return res
	}
	defer c.life.RUnlock()
	var wg sync.WaitGroup
	for g := range min(diskReaders, len(keys)) {
		wg.Go(func() {
			for i := g; i < len(keys) && ctx.Err() == nil; i += diskReaders {
				res[i].b, res[i].crc, res[i].err = r.Read(c.opt.Pool, keys[i], places[i], c.bytes(slots[i].id))
			}
		})
	}
	wg.Wait()
	return res
}

// Trail names the blocks of the chain that ends with last, first block first, as far back
// as the daemon knows it: from memory, disk, and what it remembers of blocks that went.
// At most so many; the first one may be the root of the chain, which is no block.
func (c *Client) Trail(ctx context.Context, last kvtier.Key, most int) ([]kvtier.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, diskWait)
	defer cancel()
	back := []kvtier.Key{last}
	for len(back) < most {
		k := back[len(back)-1]
		m, err := c.out.query(ctx, message{Op: opTrail, Keys: []string{hex.EncodeToString(k[:])}, N: min(diskKeys, most-len(back))})
		if err != nil {
			return nil, fmt.Errorf("asking for the blocks before %s: %w", k.Short(), err)
		}
		more := keysFromHex(m.Keys)
		if m.Op != opTrail || len(more) == 0 {
			break
		}
		back = append(back, more...)
	}
	back = back[:min(len(back), most)]
	for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
		back[i], back[j] = back[j], back[i]
	}
	return back, nil
}

// badOnDisk tells of a block on disk with wrong bytes. Reports beyond a bound are dropped:
// the block is reported again when it is read again.
func (o *outgoing) badOnDisk(k kvtier.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.requests) < maxRefs {
		o.requests = append(o.requests, message{Op: opBad, Keys: []string{hex.EncodeToString(k[:])}})
		o.wake()
	}
}
