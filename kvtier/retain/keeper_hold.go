package retain

import (
	"strconv"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// Follower is what lies below the tables of memory, a disk, and goes in the same
// order. Its methods mean what those of kvtier.Slots mean; it hears of each branch in
// the order of the calls.
type Follower interface {
	Hold(b kvtier.BranchID, tail kvtier.Key)
	Drop(b kvtier.BranchID, dead bool)
	Rank(b kvtier.BranchID, c kvtier.Class, score float64)
}

// Follow makes f hear of branches from here on. Call it before the first Branch.
func (k *Keeper) Follow(f Follower) { k.below = f }

// move notes where the context of a branch ends.
func (k *Keeper) move(now int64, b *branch, c *schemas.BranchChange, level Level) {
	tail, err := kvtier.ParseKey(c.Tail.Key)
	if err != nil || c.Tail.N <= 0 || c.Tail.From < 0 || tail.IsZero() {
		return
	}
	blocks := c.Tail.From + c.Tail.N
	if level == LevelLRU {
		if resident, _ := k.find(b); blocks < resident {
			k.haunt(b) // plain LRU keeps what is past its new end
		}
	}
	b.tail, b.blocks, b.keep = tail, blocks, 0
	if c.Keep > 0 && c.Keep < blocks && level > LevelLRU {
		b.keep = c.Keep
	}
	k.hold(b)
}

// hold tells the tables where the context of a branch ends.
func (k *Keeper) hold(b *branch) {
	at := none
	for i, p := range k.pools {
		if p.slots == nil {
			continue
		}
		if _, ok := p.slots.Find(b.tail); ok {
			at = i
			break
		}
	}
	b.held = true
	if k.below != nil {
		k.below.Hold(b.id, b.tail)
	}
	if at == none && b.pool != none {
		at = b.pool // it is sealed there, most likely
	}
	for i, p := range k.pools {
		switch {
		case p.slots == nil:
		case at == none || i == at:
			p.slots.Hold(b.id, b.tail)
		default:
			p.slots.Drop(b.id, false)
		}
	}
	b.pool = at
	k.trim(b)
}

// trim gives up the blocks that the next prompt will not repeat.
func (k *Keeper) trim(b *branch) {
	if b.keep == 0 || b.pool == none {
		return
	}
	s := k.pools[b.pool].slots
	if resident, _ := s.Held(b.id); resident != b.blocks {
		return // not there yet, or shorter already
	}
	if key, ok := s.Ancestor(b.tail, b.keep-1); ok {
		s.Hold(b.id, key)
		if k.below != nil {
			k.below.Hold(b.id, key)
		}
	}
}

// drop takes a branch out of the tables.
func (k *Keeper) drop(b *branch, dead bool) {
	if !b.held {
		return
	}
	for _, p := range k.pools {
		if p.slots != nil {
			p.slots.Drop(b.id, dead)
		}
	}
	if k.below != nil {
		k.below.Drop(b.id, dead)
	}
	delete(k.byID, b.id)
	delete(k.past, b.past)
	b.past = b.id
	k.past[b.past] = b
	k.number(b) // the blocks remember the old one
	b.held, b.pool = false, none
}

// haunt leaves the blocks of a branch to an entry of their own, which nobody but
// last use speaks for, and gives the branch a new number.
func (k *Keeper) haunt(b *branch) {
	if !b.held {
		return
	}
	g := k.enter(b.key+"#"+strconv.FormatUint(uint64(b.id), 10), b.tenant.name)
	delete(k.byID, g.id)
	g.id, g.wait, g.tail, g.blocks, g.pool, g.held, g.ghost = b.id, b.wait, b.tail, b.blocks, b.pool, true, true
	g.state, g.why, g.at, g.used = schemas.BranchSuperseded, b.why, b.at, b.used
	k.byID[g.id] = g
	k.live.Remove(g.el)
	g.el = k.over.PushBack(g)
	k.number(b)
	b.held, b.pool = false, none
}

// find returns how much of a branch's context is resident, and how many blocks it
// was the first to hold.
func (k *Keeper) find(b *branch) (resident, own int) {
	if !b.held {
		return 0, 0
	}
	if b.pool != none {
		return k.pools[b.pool].slots.Held(b.id)
	}
	for i, p := range k.pools { // it was waited for everywhere
		if p.slots == nil {
			continue
		}
		if r, o := p.slots.Held(b.id); r > 0 {
			b.pool = i
			return r, o
		}
	}
	return 0, 0
}

// fill tells the estimator how large a branch is.
func (k *Keeper) fill(b *branch) {
	_, own := k.find(b)
	b.wait.Blocks, b.wait.Own = b.blocks, own
}
