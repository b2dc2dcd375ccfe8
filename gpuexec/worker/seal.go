package worker

import (
	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
)

// seal exports whole blocks that are not yet in the tier. A full tier is no
// error: the blocks are computed again when they are needed.
func (w *Worker) seal(op *schemas.SealOp) (*schemas.SealDone, error) {
	s, err := w.get(op.Seq)
	if err != nil {
		return nil, err
	}
	id := w.at[op.Seq]
	have := w.cfg.Engine.Len(id) / blockTokens
	done := &schemas.SealDone{}
	if s.uncached {
		done.Skipped = have // whoever goes on computes them again
		return done, nil
	}
	w.extendKeys(s, have)
	have = min(have, len(s.keys))
	for s.sealed < have && w.cfg.Tier.Has(s.keys[s.sealed]) {
		s.sealed++
	}
	if s.sealed < have && !s.full {
		if err := w.export(s, id, have, done); err != nil {
			return nil, err
		}
	}
	done.Blocks = s.sealed
	done.Skipped = have - s.sealed
	if op.Tail && done.Skipped == 0 {
		return done, w.exportTail(s, id)
	}
	return done, nil
}

func (w *Worker) export(s *seq, id gpuexec.SeqID, have int, done *schemas.SealDone) error {
	if p, ok := w.cfg.Tier.(Pinner); ok && s.sealed > 0 {
		defer p.Pin(s.keys[:s.sealed])()
	}
	slots, err := w.cfg.Tier.Reserve(have - s.sealed)
	if err != nil || len(slots) == 0 {
		s.full = true // not asked again for this turn
		return nil    //nolint:nilerr // a tier that is full or away is a miss later, not a failure now
	}
	dst := make([][]byte, len(slots))
	for i, slot := range slots {
		dst[i] = slot.Data()
	}
	if err := w.cfg.Engine.Export(id, s.sealed, dst); err != nil {
		w.cfg.Tier.Abandon(slots)
		return err
	}
	for i, slot := range slots {
		b := Block{Key: s.keys[s.sealed], Index: s.sealed, Parent: s.root, Decoded: s.sealed >= s.promptBlocks()}
		if s.sealed > 0 {
			b.Parent = s.keys[s.sealed-1]
		}
		if err := w.cfg.Tier.Seal(slot, b); err != nil {
			w.cfg.Tier.Abandon(slots[i:])
			s.full = true
			return nil //nolint:nilerr // as above
		}
		s.sealed++
		done.Sealed++
	}
	return nil
}
