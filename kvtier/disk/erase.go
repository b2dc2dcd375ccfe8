package disk

import (
	"cmp"
	"errors"
	"slices"

	"github.com/weir-dev/weir/kvtier"
)

// Erase removes and overwrites, in all pools, the blocks that ends name and all that
// follow them; and of each chain, last block first, those up to the first one that other
// blocks on the disk follow or that is needed elsewhere. needed may be nil. Chains may
// have gaps, and name blocks that are not on the disk. They are taken in their order: of
// chains that meet, only the last one needs what is before that.
//
// What had replaced blocks earlier took their bytes; a file that was deleted (its pool had
// to give room) leaves what any deleted file leaves on a disk.
func (s *Store) Erase(ends []kvtier.Key, chains [][]kvtier.Key, needed func(kvtier.Key) bool) (removed []Dropped, err error) {
	s.io.Lock()
	defer s.io.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	var errs []error
	drop := func(p *pool, id kvtier.SlotID) {
		b, _ := p.slots.Get(id)
		errs = append(errs, s.discard(p, id))
		removed = append(removed, Dropped{Pool: p.name, Block: b})
	}
	for _, p := range s.pools {
		for _, k := range p.below(ends) {
			if id, ok := p.slots.Find(k); ok {
				drop(p, id)
			}
		}
		for _, chain := range chains {
			for _, k := range chain {
				id, ok := p.slots.Find(k)
				switch {
				case ok && !p.slots.Leaf(id), needed != nil && needed(k):
				case ok:
					drop(p, id)
					continue
				default:
					continue
				}
				break
			}
		}
	}
	s.mu.Lock()
	s.count.erased += uint64(len(removed))
	s.mu.Unlock()
	return removed, errors.Join(errs...)
}

// below lists the blocks that follow ends, last ones first. io is held.
func (p *pool) below(ends []kvtier.Key) (out []kvtier.Key) {
	doomed := make(map[kvtier.Key]bool, len(ends))
	for _, k := range ends {
		doomed[k] = true
	}
	blocks := p.slots.Blocks(make([]kvtier.Block, 0, p.slots.Counts().Sealed))
	slices.SortFunc(blocks, func(a, b kvtier.Block) int { return cmp.Compare(a.Index, b.Index) })
	for _, b := range blocks {
		if b.Index > 0 && doomed[b.Parent] {
			doomed[b.Key] = true
			out = append(out, b.Key)
		}
	}
	slices.Reverse(out)
	return out
}
