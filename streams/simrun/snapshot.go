package simrun

import (
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// snapshot is a saved state with the input sequences that it contains.
type snapshot struct {
	state []byte
	seqs  map[string]uint64
}

// snapping waits, like jsrun, for the publishes that happened before a state was
// taken; only then is the state saved.
type snapping struct {
	gen    uint32
	open   int // publishes without an answer
	left   int // of those, the ones that are older than the state taken
	failed bool
	taken  *snapshot
}

func (v *service) restore() (map[string]uint64, error) {
	if v.cfg.SnapshotEvery <= 0 {
		return nil, nil
	}
	v.snapshotAt()
	sn, ok := v.s.snaps[v.cfg.Name]
	if !ok {
		return nil, nil
	}
	if err := v.cfg.Actor.Restore(sn.state); err != nil {
		return nil, fmt.Errorf("simrun: restoring %s: %w", v.cfg.Name, err)
	}
	return sn.seqs, nil
}

func (v *service) snapshotAt() {
	life := v.life
	v.s.at(v.s.now+schemas.Time(v.cfg.SnapshotEvery), prioTick, func() {
		if v.life != life {
			return
		}
		v.takeSnapshot()
		v.snapshotAt()
	})
}

func (v *service) takeSnapshot() {
	if v.snap.taken != nil {
		return
	}
	sn, err := v.state()
	if err != nil {
		v.s.logf("%s cannot be saved: %s", v.cfg.Name, err)
		return
	}
	v.snap.taken, v.snap.left, v.snap.failed = &sn, v.snap.open, false
	v.snap.gen++
	v.save()
}

// sequencer is an actor that knows better than the runner which inputs its
// snapshot contains: work that is still under way is not in it. As in jsrun.
type sequencer interface{ Seqs() map[string]uint64 }

func (v *service) state() (snapshot, error) {
	b, err := v.cfg.Actor.Snapshot(nil)
	if err != nil {
		return snapshot{}, err
	}
	if a, ok := v.cfg.Actor.(sequencer); ok {
		return snapshot{state: b, seqs: a.Seqs()}, nil
	}
	seqs := map[string]uint64{}
	for _, in := range v.inputs {
		if in.stepped > 0 {
			seqs[in.cfg.Stream] = max(seqs[in.cfg.Stream], in.stepped)
		}
	}
	return snapshot{state: b, seqs: seqs}, nil
}

func (v *service) snapSettled(gen uint32, failed bool) {
	if v.snap.taken != nil && gen != v.snap.gen {
		v.snap.left--
		v.snap.failed = v.snap.failed || failed
		v.save()
	}
}

func (v *service) save() {
	if v.snap.taken == nil || v.snap.left > 0 {
		return
	}
	if !v.snap.failed {
		v.s.snaps[v.cfg.Name] = *v.snap.taken
		v.s.logf("%s saved %x", v.cfg.Name, v.snap.taken.state)
	}
	v.snap.taken = nil
}

func (v *service) lastSnapshot() error {
	if v.cfg.SnapshotEvery <= 0 || v.snap.open > 0 {
		return nil
	}
	sn, err := v.state()
	if err != nil {
		return fmt.Errorf("simrun: saving %s: %w", v.cfg.Name, err)
	}
	v.s.snaps[v.cfg.Name] = sn
	return nil
}
