package tierbench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

const (
	copyBlock = 1 << 20
	copyBatch = 16 // blocks that are leased or reserved together, as a turn's are
)

// ring is blocks of ordinary memory, every page of it there.
type ring struct {
	blocks [][]byte
	at     int
}

func newRing(n int) *ring {
	r := &ring{}
	for i := range n {
		b := make([]byte, copyBlock)
		for j := 0; j < len(b); j += 8 {
			binary.LittleEndian.PutUint64(b[j:], uint64(i)<<32^uint64(j)*0x9E3779B97F4A7C15)
		}
		r.blocks = append(r.blocks, b)
	}
	return r
}

func (r *ring) next() []byte {
	r.at = (r.at + 1) % len(r.blocks)
	return r.blocks[r.at]
}

func keyOf(i int) kvtier.Key { return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i))) }

// copies measures reads and writes of blocks of 1 MiB against memcpy of as many
// bytes between rings of as many blocks in ordinary memory.
func copies(ctx context.Context, opt Options, factor int) ([]Figure, error) {
	n, rounds := 128*factor, 40
	if opt.Short {
		n, rounds = 32, 4
	}
	m, err := newMemory(ctx, opt, copyBlock, int64(n)*(copyBlock+1024)+1<<20)
	if err != nil {
		return nil, err
	}
	defer m.close()
	src, dst := newRing(n), newRing(n)
	c := &copier{ctx: ctx, m: m.client, src: src, dst: dst}
	for range n / copyBatch { // every page of the memory is mapped from here on
		if err := c.put(); err != nil {
			return nil, err
		}
	}
	for i := range c.next {
		if m.client.Match([]kvtier.Key{keyOf(i)}) == 1 { // the first ones gave way to slots that are kept in reserve
			c.stored = append(c.stored, keyOf(i))
		}
	}
	var out []Figure
	for _, k := range []struct {
		name, note string
		ours       func() error
	}{
		{"get.vs_memcpy", "lease, copy out with checksum, release", c.get},
		{"put.vs_memcpy", "reserve with eviction, copy in with checksum, seal", c.put},
	} {
		v, noise, err := quiet(func() ([]float64, error) { return c.ratios(rounds, k.ours) })
		if err != nil {
			return nil, err
		}
		out = append(out, Figure{
			Name: k.name, Value: v, Unit: "ratio", Bar: 0.8,
			Note: fmt.Sprintf("%s; %d blocks of 1 MiB, memcpy %.1f GB/s, spread %.0f %%", k.note, n, c.plain, 100*noise),
		})
	}
	return out, nil
}

type copier struct {
	ctx      context.Context
	m        *hostmem.Client
	src, dst *ring
	next     int // block to store
	stored   []kvtier.Key
	seen     int // block to read
	plain    float64
}

// ratios takes ours and memcpy in turns, the other one first in every second round.
func (c *copier) ratios(rounds int, ours func() error) ([]float64, error) {
	var out, speed []float64
	for i := range rounds {
		var mine, plain time.Duration
		for k := range 2 {
			begin := time.Now()
			if (i+k)%2 == 0 {
				if err := ours(); err != nil {
					return nil, err
				}
				mine = time.Since(begin)
				continue
			}
			for range copyBatch {
				copy(c.dst.next(), c.src.next())
			}
			plain = time.Since(begin)
		}
		out = append(out, plain.Seconds()/mine.Seconds())
		speed = append(speed, copyBatch*copyBlock/plain.Seconds()/1e9)
	}
	c.plain = median(speed)
	return out, nil
}

func (c *copier) put() error {
	slots, err := c.m.Reserve(c.ctx, copyBatch)
	if err != nil {
		return err
	}
	for _, s := range slots {
		if _, err := c.m.SealFrom(s, kvtier.Block{Key: keyOf(c.next)}, c.src.next()); err != nil {
			return err
		}
		c.next++
	}
	return nil
}

func (c *copier) get() error {
	for range copyBatch {
		c.seen = (c.seen + 1) % len(c.stored)
		refs := c.m.Lease(c.stored[c.seen : c.seen+1])
		if len(refs) != 1 || !c.m.Copy(refs[0], c.dst.next()) {
			return fmt.Errorf("tierbench: block %d is not there", c.seen)
		}
		c.m.Release(refs)
	}
	return nil
}
