package worker

import (
	"encoding/hex"
	"errors"
	"slices"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
)

// The device medium. A sequence whose turn is over stays in the engine with its
// whole blocks until a turn needs the room. The executor numbers sequences by free
// places; which sequence of the engine stands behind a number is chosen here, so that
// a prompt meets the one that holds its beginning.

// kept is what a sequence of the engine holds without a turn: the KV of the blocks
// that keys name, from the root on. Empty when it holds nothing.
type kept struct {
	keys []Key
	at   uint64 // Worker.drops when it was left
	goes int    // place in the tier's order at the last Sweep, from 1; 0 when it was left since
}

// Orderer is implemented by tiers that know which contexts are needed least.
type Orderer interface {
	// First is the index of the chain, named by its last key, that goes first in the
	// tier's retention order; -1 when that is not known, or not known soon.
	First(tails []Key) int
}

// keep leaves the whole blocks of a sequence whose turn is over in the engine.
func (w *Worker) keep(s *seq, id gpuexec.SeqID) {
	n := min(s.sealed, w.cfg.Engine.Len(id)/blockTokens, len(s.keys))
	c, ok := w.cfg.Engine.(gpuexec.Cutter)
	if !ok || w.cfg.NoKeep || n == 0 || s.uncached || len(s.ready.Prompt.Media) > 0 || c.Cut(id, n*blockTokens) != nil {
		w.cfg.Engine.Drop(id)
		return
	}
	w.drops++
	w.kept[id] = kept{keys: s.keys[:n:n], at: w.drops}
	w.changed = true
}

// release forgets what a sequence of the engine keeps.
func (w *Worker) release(id gpuexec.SeqID) {
	if len(w.kept[id].keys) == 0 {
		return
	}
	w.kept[id] = kept{}
	w.cfg.Engine.Drop(id)
	w.changed = true
}

// resume opens a turn on a kept sequence that holds at least as much of its prompt as
// the tier. It returns nil when there is none. A turn that was begun elsewhere is
// rebuilt from the tier, whose blocks say how they came about.
func (w *Worker) resume(s *seq, op *schemas.OpenOp, keys []Key) *schemas.OpenDone {
	if len(op.Delivered) > 0 || len(s.ready.Prompt.Media) > 0 || len(keys) == 0 {
		return nil
	}
	place, n := int32(-1), 0
	for i, id := range w.at {
		if w.seqs[i] != nil {
			continue
		}
		if m := common(w.kept[id].keys, keys); m > n {
			place, n = int32(i), m
		}
	}
	if n == 0 || n*blockTokens < s.known || n < len(keys) && w.cfg.Tier.Has(keys[n]) {
		return nil
	}
	w.at[place], w.at[op.Seq] = w.at[op.Seq], w.at[place]
	id := w.at[op.Seq]
	w.kept[id] = kept{}
	w.changed = true
	if w.cfg.Engine.(gpuexec.Cutter).Cut(id, n*blockTokens) != nil {
		return nil // it is empty now
	}
	if p, ok := w.cfg.Tier.(Pinner); ok {
		p.Pin(keys[:n])() // the tier sees that they are used
	}
	for s.sealed < n && w.cfg.Tier.Has(keys[s.sealed]) {
		s.sealed++
	}
	w.seqs[op.Seq] = s
	return &schemas.OpenDone{Cached: n * blockTokens, Missing: s.promptBlocks() - n, Gone: w.gone(s, n)}
}

// common is the number of leading keys that both chains have.
func common(a, b []Key) int {
	n := min(len(a), len(b))
	if n > 0 && a[n-1] == b[n-1] {
		return n // a key names all before it
	}
	lo, hi := 0, n // a[:lo] are common, a[hi] is not
	for lo < hi {
		if mid := (lo + hi) / 2; a[mid] == b[mid] {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// vacate gives a place of the executor an empty sequence of the engine: one that
// keeps nothing if there is one, or that which is needed least.
func (w *Worker) vacate(place int32) {
	for i, id := range w.at {
		if w.seqs[i] == nil && len(w.kept[id].keys) == 0 {
			w.at[place], w.at[i] = w.at[i], w.at[place]
			return
		}
	}
	least := w.least()
	for i, id := range w.at {
		if id == least {
			w.at[place], w.at[i] = w.at[i], w.at[place]
			break
		}
	}
	w.release(w.at[place])
}

// least is the kept sequence that goes first: by the tier's order as it was at the last
// Sweep, then the one left longest ago. -1 when none is kept. The tier is not asked
// here: a turn waits.
func (w *Worker) least() gpuexec.SeqID {
	least := gpuexec.SeqID(-1)
	for id := range w.kept {
		if len(w.kept[id].keys) > 0 && (least < 0 || w.kept[id].before(&w.kept[least])) {
			least = gpuexec.SeqID(id)
		}
	}
	return least
}

// before reports whether k goes before o.
func (k *kept) before(o *kept) bool {
	if k.goes != o.goes {
		return k.goes != 0 && (o.goes == 0 || k.goes < o.goes)
	}
	return k.at < o.at
}

// maxPlaces bounds the questions of one Sweep; more sequences hardly go before the next.
const maxPlaces = 16

// order asks the tier in which order the kept sequences go.
func (w *Worker) order() {
	o, ok := w.cfg.Tier.(Orderer)
	if !ok {
		return
	}
	var ids []int
	var tails []Key
	for id := range w.kept {
		w.kept[id].goes = 0
		if n := len(w.kept[id].keys); n > 0 {
			ids, tails = append(ids, id), append(tails, w.kept[id].keys[n-1])
		}
	}
	for place := 1; len(ids) > 0 && place <= maxPlaces; place++ {
		i := 0
		if len(ids) > 1 {
			if i = o.First(tails); i < 0 || i >= len(ids) {
				return // not known: those that are left go by age
			}
		}
		w.kept[ids[i]].goes = place
		ids, tails = slices.Delete(ids, i, i+1), slices.Delete(tails, i, i+1)
	}
}

// roomFor calls f again, without what is kept, as long as the engine has no room.
func (w *Worker) roomFor(f func() error) error {
	for {
		err := f()
		if !errors.Is(err, gpuexec.ErrNoRoom) {
			return err
		}
		id := w.least()
		if id < 0 {
			return err
		}
		w.release(id)
	}
}

// compute runs one step of the engine.
func (w *Worker) compute(phase gpuexec.Phase, rows []gpuexec.Row) error {
	return w.roomFor(func() error { return w.cfg.Engine.Step(phase, rows) })
}

// The rules of kvtier/hostmem by which the blocks of a deleted session go. All that is
// kept was in the tier once; a tier that does not know any more why it went, or has never
// heard of it, because it began anew, may have forgotten that it was erased.
const (
	ruleErased    = "erase"
	ruleForgotten = "forgotten"
	ruleNever     = ""
)

// Sweep asks the tier for the order of what is kept, and forgets kept sequences of
// which the tier says that they were erased, or cannot say that they were not. Call it
// from time to time when there is nothing else to do.
func (w *Worker) Sweep() {
	w.order()
	m, ok := w.cfg.Tier.(Rememberer)
	if !ok {
		return
	}
	for id, k := range w.kept {
		n := len(k.keys)
		if n == 0 || w.cfg.Tier.Has(k.keys[n-1]) {
			continue
		}
		g, ok := m.Why(k.keys[n-1])
		switch {
		case !ok:
			return // nobody answers: not asked for the others either
		case g.Rule == ruleErased, g.Rule == ruleForgotten, g.Rule == ruleNever:
			w.release(gpuexec.SeqID(id))
		}
	}
}

// device is what stays in the engine without a turn.
func (w *Worker) device() *schemas.DeviceState {
	d := &schemas.DeviceState{}
	for _, k := range w.kept {
		if n := len(k.keys); n > 0 {
			d.Blocks += n
			d.Kept = append(d.Kept, schemas.Extent{Key: hex.EncodeToString(k.keys[n-1][:]), N: n})
		}
	}
	return d
}
