package tierbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

const (
	tinyBlock = 64
	chainLen  = 1000 // blocks of a chain: 64 k tokens at 64 each

	headerBytes = 128 + 8    // of a slot in its pool: header and lease bits
	fileHeader  = 12 << 10   // of a pool
	indexBytes  = 8 * 4 / 3. // the shared index has four buckets for three slots
)

// index measures the look-up of prefixes and the memory per block, over blocks of 64
// bytes, so that nothing but the tables counts.
func index(ctx context.Context, opt Options, factor int) ([]Figure, error) {
	n, rounds := 100_000*factor, 30
	if opt.Short {
		n, rounds = 10_000, 4
	}
	m, err := newMemory(ctx, opt, tinyBlock, int64(float64(n)*(tinyBlock+headerBytes+indexBytes))+fileHeader+16<<10)
	if err != nil {
		return nil, err
	}
	defer m.close()
	rng := rand.New(rand.NewPCG(1, 1))
	chains, err := fillChains(ctx, m.client, n, rng)
	if err == nil {
		err = m.settled(ctx, n)
	}
	if err != nil {
		return nil, err
	}
	v, noise, err := quiet(func() (out []float64, err error) {
		runtime.LockOSThread() // whose time is taken: what others do on this core does not count
		defer runtime.UnlockOSThread()
		for range rounds {
			begin, found := threadTime(), 0
			for range 64 {
				found += m.client.Match(chains[rng.IntN(len(chains))])
			}
			out = append(out, float64(found)/(threadTime()-begin).Seconds())
		}
		return out, ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	heap, shared, err := footprint(m, n)
	if err != nil {
		return nil, err
	}
	return []Figure{
		{
			Name: "index.matches_per_s", Value: v, Unit: "blocks/s", Bar: 5e6,
			Note: fmt.Sprintf("thread time, chains of %d of %d blocks in slots at random, spread %.0f %%", chainLen, n, 100*noise),
		},
		{
			Name: "index.bytes_per_block", Value: heap + shared, Unit: "B", Bar: 120, Low: true,
			Note: fmt.Sprintf("daemon's table %.1f, shared index %.1f; the block's own header in its pool (%d B) is not counted", heap, shared, headerBytes),
		},
	}, nil
}

// fillChains seals n blocks in chains, in slots at random as after long use, and
// returns their keys.
func fillChains(ctx context.Context, c *hostmem.Client, n int, rng *rand.Rand) ([][]kvtier.Key, error) {
	var slots []hostmem.Slot
	for len(slots) < n {
		more, err := c.Reserve(ctx, min(chainLen, n-len(slots)))
		if err != nil {
			return nil, err
		}
		slots = append(slots, more...)
	}
	rng.Shuffle(n, func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	var out [][]kvtier.Key
	data := make([]byte, tinyBlock)
	for len(slots) > 0 {
		parent := keyOf(-1 - len(out))
		keys := make([]kvtier.Key, min(chainLen, len(slots)))
		for i := range keys {
			keys[i] = keyOf(len(out)*chainLen + i)
			if _, err := c.SealFrom(slots[i], kvtier.Block{Key: keys[i], Parent: parent, Index: i}, data); err != nil {
				return nil, err
			}
			parent = keys[i]
		}
		slots = slots[len(keys):]
		out = append(out, keys)
	}
	return out, nil
}

// footprint is the heap that a daemon's table of n blocks takes, and the shared index,
// per block. The daemon is started anew between the two looks at the heap.
func footprint(m *memory, n int) (heap, shared float64, err error) {
	err = m.client.Close()
	m.client = nil
	if err != nil {
		return 0, 0, err
	}
	if err := m.daemon.Close(); err != nil {
		return 0, 0, err
	}
	m.daemon = nil
	before := heapInUse()
	if err := m.start(); err != nil {
		return 0, 0, err
	}
	after := heapInUse()
	s, err := m.daemon.Stats()
	if err != nil {
		return 0, 0, err
	}
	if len(s) != 1 || s[0].Sealed != n {
		return 0, 0, fmt.Errorf("tierbench: %d pools after a restart, want one with %d blocks", len(s), n)
	}
	file := s[0].FileBytes - fileHeader - int64(s[0].Total)*(tinyBlock+headerBytes) // to the page
	return float64(after-before) / float64(n), float64(file) / float64(n), nil
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
