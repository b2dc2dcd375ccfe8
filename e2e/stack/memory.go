package stack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
)

// Memory is a test's access to the KV blocks that the executors share.
type Memory struct{ c *hostmem.Client }

// Memory joins the pool of executors of that model, format and block size, as they
// do. Stop leaves it.
func (s *Stack) Memory(ctx context.Context, m *model.Model, f schemas.KVFormat, blockBytes int) (*Memory, error) {
	// As services/executor names the pool. Another name would be an empty pool, in
	// which no block is found.
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%s|%s|%d", m.Digest, f.Engine, f.Version, f.Numerics, f.Layout))
	c, err := hostmem.Attach(ctx, hostmem.Options{
		Dir: s.Ready.KVDir, Writer: "e2e-memory", Pool: m.Name + "-" + hex.EncodeToString(sum[:8]), BlockBytes: int64(blockBytes),
		Cache: -1, Wait: -1,
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close = append(s.close, func() { _ = c.Close() }) // the daemon sees the lock free
	return &Memory{c: c}, nil
}

// Resident is the length of the longest prefix of keys that is in memory.
func (m *Memory) Resident(keys []kvtier.Key) int { return m.c.Match(keys) }

// Read copies a block; ok is false when it is not in memory.
func (m *Memory) Read(k kvtier.Key) (data []byte, b kvtier.Block, ok bool) {
	refs := m.c.Lease([]kvtier.Key{k})
	if len(refs) == 0 {
		return nil, b, false
	}
	defer m.c.Release(refs)
	data = make([]byte, m.c.BlockBytes())
	if !m.c.Copy(refs[0], data) {
		return nil, b, false
	}
	b, ok = m.c.Block(k)
	return data, b, ok
}

// Evict presses every unleased block out of memory: it reserves all slots that it
// can get and gives them back.
func (m *Memory) Evict(ctx context.Context) error {
	release, err := m.Occupy(ctx)
	if err != nil {
		return err
	}
	release()
	return ctx.Err()
}

// Occupy reserves all slots that it can get, until release: nothing can be stored.
func (m *Memory) Occupy(ctx context.Context) (release func(), err error) {
	var all []hostmem.Slot
	for n := m.c.Capacity(); n > 0 && ctx.Err() == nil; {
		slots, err := m.c.Reserve(ctx, n)
		switch {
		case errors.Is(err, hostmem.ErrFull):
			n /= 2
		case err != nil:
			m.c.Abandon(all)
			return nil, err
		default:
			all = append(all, slots...)
			n = min(n, m.c.Capacity()-len(all))
		}
	}
	if len(all) == 0 {
		return nil, errors.New("stack: no block could be evicted: all are leased or reserved")
	}
	return func() { m.c.Abandon(all) }, nil
}
