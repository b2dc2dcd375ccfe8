// Package peerbench compares a transfer of KV blocks from node to node with a bare copy
// of the same bytes over as many TCP connections of this machine.
package peerbench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/kvtier/peer"
)

const (
	blockBytes = 1 << 20
	blocks     = 96 // more than the processor's caches hold
	rounds     = 15
	streams    = 2
	pool       = "bench"
)

// Result is what was measured. Speeds are medians, in bytes per second.
type Result struct {
	Ratio float64 // median over rounds of the peer's speed by the bare copy's
	Bare  float64
	Peer  float64
}

// Ratio is Result.Ratio of Measure.
func Ratio(ctx context.Context, factor int) (float64, error) {
	r, err := Measure(ctx, factor)
	return r.Ratio, err
}

// Measure runs both in turn, so that what else the machine does meets both, with factor
// times the blocks. For factor 1 it takes some 400 MiB of memory and a few seconds.
func Measure(ctx context.Context, factor int) (Result, error) {
	blocks := blocks * factor
	rounds := max(3, rounds/factor)
	far, err := newHost(ctx, blocks)
	if err != nil {
		return Result{}, err
	}
	defer far.close()
	near, err := newHost(ctx, blocks)
	if err != nil {
		return Result{}, err
	}
	defer near.close()
	keys, err := far.fill(ctx, blocks)
	if err != nil {
		return Result{}, err
	}
	if _, err := near.fill(ctx, blocks); err != nil { // touches every page, as a memory in use has
		return Result{}, err
	}
	srv, err := peer.Serve(peer.ServerConfig{Dir: far.dir})
	if err != nil {
		return Result{}, err
	}
	defer srv.Close()
	c := peer.NewClient(near.mem, peer.Options{Streams: streams, Timeout: time.Minute, ReadTimeout: 10 * time.Second})
	defer c.Close()
	bare, err := newBare(streams, blocks*blockBytes)
	if err != nil {
		return Result{}, err
	}
	defer bare.close()
	var ratios, bares, peers []float64
	for i := range rounds + 1 {
		slow, err := bare.copy()
		if err != nil {
			return Result{}, err
		}
		if err := near.empty(ctx, keys); err != nil {
			return Result{}, err
		}
		start := time.Now()
		res, err := c.Fetch(ctx, srv.Addr(), keys)
		took := time.Since(start)
		if err != nil || res.Brought != blocks {
			return Result{}, errors.Join(err, fmt.Errorf("peerbench: %d of %d blocks came: %+v", res.Brought, blocks, res))
		}
		if i == 0 {
			continue // connections are made and windows grow
		}
		ratios = append(ratios, slow.Seconds()/took.Seconds())
		bares = append(bares, float64(blocks*blockBytes)/slow.Seconds())
		peers = append(peers, float64(blocks*blockBytes)/took.Seconds())
	}
	return Result{Ratio: median(ratios), Bare: median(bares), Peer: median(peers)}, nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// host is a node's memory with its daemon and one client.
type host struct {
	dir string
	d   *hostmem.Daemon
	mem *hostmem.Client
}

func newHost(ctx context.Context, blocks int) (h host, err error) {
	base := ""
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		base = "/dev/shm"
	}
	if h.dir, err = os.MkdirTemp(base, "weirpb"); err != nil {
		return h, err
	}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if h.d, err = hostmem.NewDaemon(hostmem.Config{Dir: h.dir, Bytes: int64(blocks)*blockBytes + 8<<20}); err != nil {
		return h, err
	}
	h.mem, err = hostmem.Attach(ctx, hostmem.Options{Dir: h.dir, Writer: "w", Pool: pool, BlockBytes: blockBytes, Cache: -1})
	return h, err
}

func (h host) close() {
	if h.mem != nil {
		_ = h.mem.Close()
	}
	if h.d != nil {
		_ = h.d.Close()
	}
	_ = os.RemoveAll(h.dir)
}

// fill seals a chain of blocks that are not empty.
func (h host) fill(ctx context.Context, blocks int) (keys []kvtier.Key, err error) {
	parent := kvtier.Key(sha256.Sum256([]byte(pool)))
	for i := range blocks {
		k, err := kvtier.Chain(parent, i, []int32{int32(i)}, nil)
		if err != nil {
			return nil, err
		}
		slots, err := h.mem.Reserve(ctx, 1)
		if err != nil {
			return nil, err
		}
		for j, b := 0, slots[0].Data(); j < len(b); j++ {
			b[j] = byte(i + j)
		}
		if _, err := h.mem.Seal(slots[0], kvtier.Block{Key: k, Parent: parent, Index: i}); err != nil {
			return nil, err
		}
		keys, parent = append(keys, k), k
	}
	return keys, nil
}

// empty clears the memory, also of blocks of which its daemon has not heard yet.
func (h host) empty(ctx context.Context, keys []kvtier.Key) error {
	left := func(k kvtier.Key) bool { return h.mem.Match([]kvtier.Key{k}) > 0 }
	for slices.ContainsFunc(keys, left) {
		if _, err := h.d.Clear(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
