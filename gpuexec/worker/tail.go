package worker

import "github.com/weir-dev/weir/gpuexec"

// The end of a context fills no block. When a decode is handed over it is kept all the
// same, as a block that holds fewer tokens: its key names just these, so that nobody
// takes it for a whole one. Without it the next executor would compute up to 63 tokens
// again, one by one, while the turn's reader waits.

// tailKey names the tokens behind the whole blocks of a context, whose last key is
// parent; false when there are none, or when they have no safe name.
func (w *Worker) tailKey(s *seq, parent Key, tokens []int32) (Key, bool) {
	if _, ok := w.cfg.Engine.(gpuexec.Tailer); !ok || s.uncached || len(s.ready.Prompt.Media) > 0 {
		return Key{}, false
	}
	i := len(tokens) / blockTokens
	if len(tokens)%blockTokens == 0 || i*blockTokens < s.known {
		return Key{}, false
	}
	return w.cfg.Keys.Chain(parent, i, tokens[i*blockTokens:], nil), true
}

// parent is the key before block i.
func (s *seq) parent(keys []Key, i int) Key {
	if i == 0 {
		return s.root
	}
	return keys[i-1]
}

// exportTail keeps what a sequence holds behind its whole blocks. A full tier is no
// error here either.
func (w *Worker) exportTail(s *seq, id gpuexec.SeqID) error {
	n := w.cfg.Engine.Len(id)
	i := n / blockTokens
	if !s.started || i > len(s.keys) || n > len(s.tokens) {
		return nil
	}
	key, ok := w.tailKey(s, s.parent(s.keys, i), s.tokens[:n])
	if !ok || w.cfg.Tier.Has(key) {
		return nil
	}
	if p, ok := w.cfg.Tier.(Pinner); ok && i > 0 {
		defer p.Pin(s.keys[:i])()
	}
	slots, err := w.cfg.Tier.Reserve(1)
	if err != nil || len(slots) == 0 {
		return nil //nolint:nilerr // a miss later, not a failure now
	}
	if err := w.cfg.Engine.(gpuexec.Tailer).ExportTail(id, slots[0].Data()); err != nil {
		w.cfg.Tier.Abandon(slots)
		return err
	}
	if w.cfg.Tier.Seal(slots[0], Block{Key: key, Index: i, Parent: s.parent(s.keys, i), Decoded: true}) != nil {
		w.cfg.Tier.Abandon(slots)
	}
	return nil
}

// load imports blocks, the last of which holds only tail tokens if that is not 0. A
// tail that the engine does not take is computed again.
func (w *Worker) load(id gpuexec.SeqID, src [][]byte, tail int) (tookTail bool, err error) {
	if tail > 0 {
		last := len(src) - 1
		if w.cfg.Engine.(gpuexec.Tailer).ImportTail(id, src[:last], src[last], tail) == nil {
			return true, nil
		}
		w.cfg.Engine.Drop(id)
		src = src[:last]
	}
	if len(src) == 0 {
		return false, nil
	}
	return false, w.roomFor(func() error { return w.cfg.Engine.Import(id, src) })
}
