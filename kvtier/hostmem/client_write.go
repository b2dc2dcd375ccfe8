package hostmem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// Reserve returns n slots to write blocks into. It waits at most Options.Wait
// (less if ctx ends sooner) for room: ErrFull means that there is none, ErrDown
// that the daemon did not answer and not enough was kept in reserve. Both mean: do
// not store.
func (c *Client) Reserve(ctx context.Context, n int) ([]Slot, error) {
	if n <= 0 {
		return nil, nil
	}
	if !c.use() {
		return nil, ErrClosed
	}
	defer c.life.RUnlock()
	if int64(n) > c.slots {
		return nil, fmt.Errorf("%w: %d slots asked for, the pool has %d", ErrFull, n, c.slots)
	}
	patience := c.opt.Wait
	if patience < 0 {
		patience = ioTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	refs := c.out.fromCache(n)
	for len(refs) < n {
		more, err := c.out.ask(ctx, min(n-len(refs), maxRefs), c.room(ctx))
		refs = append(refs, more...)
		if errors.Is(err, errLink) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			c.out.giveBack(refs, c.underPressure())
			return nil, fmt.Errorf("reserve %d slots of %d bytes: %w", n, c.block, err)
		}
	}
	c.out.giveBack(refs[n:], c.underPressure())
	refs = refs[:n]
	slots := make([]Slot, len(refs))
	for i, r := range refs {
		slots[i] = Slot{c: c, id: uint32(r[0]), gen: r[1]}
	}
	return slots, nil
}

// room is how long the daemon may let a reservation wait for room: less than what
// is left of ctx, so that its refusal arrives in time.
func (c *Client) room(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok || c.opt.Wait < 0 {
		return 0
	}
	left := time.Until(deadline)
	return max(0, left-left/4)
}

// Seal publishes the block in a slot: from its return on, every client finds it.
// The slot's memory must not be written afterwards. duplicate means that the key
// was sealed before; the slot is then given back and the block is the earlier one.
// ErrLost means that the slot is not this client's; nothing was published.
func (c *Client) Seal(s Slot, b kvtier.Block) (duplicate bool, err error) {
	return c.seal(s, b, func() uint32 { return checksum(c.bytes(s.id)) })
}

// SealFrom copies data (BlockBytes long) into a slot and seals it, with one pass
// over the bytes for copy and checksum together.
func (c *Client) SealFrom(s Slot, b kvtier.Block, data []byte) (duplicate bool, err error) {
	if int64(len(data)) != c.opt.BlockBytes {
		return false, fmt.Errorf("%w: %s has %d bytes, want %d", kvtier.ErrBadBlock, b.Key.Short(), len(data), c.opt.BlockBytes)
	}
	return c.seal(s, b, func() uint32 { return copySum(c.bytes(s.id), data) })
}

// seal publishes a slot; sum returns the checksum of its bytes and runs only if
// the slot is this client's.
func (c *Client) seal(s Slot, b kvtier.Block, sum func() uint32) (duplicate bool, err error) {
	if b.Key.IsZero() || b.Index < 0 || b.Index >= kvtier.MaxSlots || b.Key == b.Parent {
		return false, fmt.Errorf("%w: key %s, parent %s, index %d", kvtier.ErrBadBlock, b.Key.Short(), b.Parent.Short(), b.Index)
	}
	if s.c != c || !c.use() {
		return false, fmt.Errorf("seal %s: %w", b.Key.Short(), ErrLost)
	}
	defer c.life.RUnlock()
	h := c.slot(s.id)
	ref := slotRef{uint64(s.id), s.gen}
	if !c.out.owns(ref) || h.word().Load() != word(s.gen, stReserved) {
		return false, fmt.Errorf("seal %s in slot %d: %w", b.Key.Short(), s.id, ErrLost)
	}
	h.describe(b, s.gen, sum(), c.opt.Now())
	if !h.word().CompareAndSwap(word(s.gen, stReserved), word(s.gen, stSealed)) {
		return false, fmt.Errorf("seal %s in slot %d: %w", b.Key.Short(), s.id, ErrLost)
	}
	found, ok := c.insert(&b.Key, s.id)
	c.out.sealed(ref)
	return ok && found != s.id, nil
}

// Abandon gives slots back that will not be sealed.
func (c *Client) Abandon(slots []Slot) {
	if len(slots) == 0 || !c.use() {
		return
	}
	defer c.life.RUnlock()
	refs := make([]slotRef, 0, len(slots))
	for _, s := range slots {
		if ref := (slotRef{uint64(s.id), s.gen}); s.c == c && c.out.owns(ref) {
			refs = append(refs, ref)
		}
	}
	c.out.giveBack(refs, c.underPressure())
}
