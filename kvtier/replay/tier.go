package replay

import (
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/retain"
)

// tier is a node: the shipped table of slots and, for Weir, the shipped keeper, used
// as the daemon uses them. What an executor does stands around them: it looks a prompt
// up, leases its blocks while it reads and writes them, and seals what it computes.
type tier struct {
	*meter
	slots  *kvtier.Slots
	keeper *retain.Keeper // nil: nobody hears of branches
	slotOf []int32        // by block: its slot plus 1
	block  []int32        // by slot
	use    []int64        // by slot: last use
	lease  []int32        // by slot: the operation that leased it last
	op     int32
	last   int64 // time of the operation before
	res1   []kvtier.Reservation
}

var _ kvtier.Readers = (*tier)(nil)

// Leased reports whether the operation in progress reads or has written a slot.
func (t *tier) Leased(id kvtier.SlotID) bool { return t.lease[id] == t.op }

// LastUse is when a slot was last used.
func (t *tier) LastUse(id kvtier.SlotID) int64 { return t.use[id] }

const writer = 1

func newTier(m *meter, blocks int, cfg retain.Config) *tier {
	t := &tier{
		meter: m, slots: kvtier.NewSlots(blocks), slotOf: make([]int32, len(m.log.Blocks)),
		block: make([]int32, blocks), use: make([]int64, blocks), lease: make([]int32, blocks),
	}
	if m.res.Policy == Weir {
		cfg.Policy = retain.PolicyWeir
		t.keeper = retain.NewKeeper(cfg)
		t.keeper.Add(0, t.slots, blockTokens)
	}
	return t
}

func (t *tier) run() {
	for i := range t.log.Ops {
		o := &t.log.Ops[i]
		if t.keeper != nil {
			t.tick(o.At)
		}
		t.op++
		switch o.Kind {
		case OpStart:
			c := &t.log.Calls[o.Call]
			t.looked(c, t.look(o.At, c))
			t.seal(o.At, c, 0, c.Look)
		case OpEnd:
			c := &t.log.Calls[o.Call]
			t.seal(o.At, c, c.Look, c.Blocks)
		case OpBranch:
			if t.keeper != nil {
				t.keeper.Branch(o.At, o.Branch)
			}
		}
	}
}

// tick ranks branches as often as the keeper wants until now.
func (t *tier) tick(now int64) {
	for n := max(t.keeper.Next(), t.last); n <= now; n = t.keeper.Next() {
		t.keeper.Tick(n)
		if t.keeper.Next() <= n {
			break
		}
	}
	t.last = now
}

// look leases and uses the leading blocks of a prompt that are in memory, and returns
// their number.
func (t *tier) look(now int64, c *Call) (found int32) {
	c.each(c.Look, func(_, b int32) bool {
		s := t.slotOf[b] - 1
		if s < 0 {
			return false
		}
		t.use[s], t.lease[s] = now, t.op
		found++
		return true
	})
	return found
}

// seal puts blocks from..to-1 of a call into memory, as far as there is room. Those
// before them make no room for them.
func (t *tier) seal(now int64, c *Call, from, to int32) {
	c.each(to, func(_, b int32) bool {
		if s := t.slotOf[b] - 1; s >= 0 {
			t.lease[s] = t.op
		}
		return true
	})
	full := false
	c.each(to, func(i, b int32) bool {
		if i < from {
			return true
		}
		if s := t.slotOf[b] - 1; s >= 0 {
			t.use[s] = now
			return true
		}
		t.computed(now, b)
		if full = full || !t.room(now); full {
			t.meter.res.Refused++
			return true
		}
		t.put(now, b)
		return true
	})
}

// room makes sure that a slot is free.
func (t *tier) room(now int64) bool {
	if t.slots.Counts().Free > 0 {
		return true
	}
	id, ok := t.slots.Victim(t, now)
	if !ok {
		return false
	}
	class, _ := t.slots.ClassOf(id)
	b, err := t.slots.Evict(id)
	if err != nil {
		return false
	}
	if t.keeper != nil {
		t.keeper.Evicted(now, 0, b, class)
	}
	n := t.block[id]
	t.slotOf[n] = 0
	t.gone(now, n, class)
	return true
}

// put seals block b in a free slot.
func (t *tier) put(now int64, n int32) {
	b := &t.log.Blocks[n]
	x := kvtier.Block{Key: b.Key, Parent: t.log.parentKey(b), Index: int(b.Index)}
	t.res1 = t.slots.Reserve(writer, 1, t.res1[:0])
	id := t.res1[0].Slot
	// Readers are asked while the slot is sealed.
	t.use[id], t.lease[id] = now, t.op
	if _, dup, err := t.slots.Seal(writer, t.res1[0], x, now); err != nil || dup {
		_ = t.slots.Abandon(writer, t.res1[0])
		t.meter.res.Refused++
		return
	}
	t.slotOf[n], t.block[id] = int32(id)+1, n
	if t.keeper != nil {
		t.keeper.Sealed(now, 0, b.Key)
	}
}
