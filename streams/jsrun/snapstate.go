package jsrun

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// snapState makes snapshots consistent: a state is written only when every
// publish that happened before it is acknowledged, otherwise a crash would leave
// a state that believes in messages that were never stored.
//
//	publishes  1 2 3 | 4 5      taken after 3: wait for 1, 2, 3
type snapState struct {
	loaded map[string]uint64 // of the snapshot that was restored
	next   schemas.Time
	gen    uint32                 // generation of publishes; grows with each snapshot taken
	left   int                    // publishes of older generations that are not settled
	failed bool                   // one of them was given up
	encode func() ([]byte, error) // of the state that was taken; waits for left to be 0
	at     schemas.Time           // when it was taken
	held   schemas.Time           // an urgent one is not taken before, because one just failed
	seqs   map[string]uint64
	busy   bool // being written
	// hurried: the last one was taken because the actor asked; again: it was not
	// written, so that is still to be done.
	hurried, again bool
}

// settled takes note of a publish of a generation.
func (s *snapState) settled(gen uint32, failed bool) {
	if s.encode != nil && gen != s.gen {
		s.left--
		s.failed = s.failed || failed
	}
}

// restore loads the snapshot into the actor.
func (r *Runner) restore(ctx context.Context) error {
	r.snap.next = schemas.Never
	if r.cfg.Snapshots == nil {
		return nil
	}
	if r.cfg.SnapshotEvery > 0 {
		r.snap.next = r.cfg.Clock() + schemas.Time(r.cfg.SnapshotEvery)
	}
	state, seqs, err := r.cfg.Snapshots.Load(ctx, r.cfg.SnapshotActor, r.cfg.Shard)
	if err != nil {
		return fmt.Errorf("jsrun: %s: loading the snapshot: %w", r.cfg.Name, err)
	}
	if state == nil {
		return nil
	}
	if err := r.cfg.Actor.Restore(state); err != nil {
		return fmt.Errorf("jsrun: %s: restoring the snapshot: %w", r.cfg.Name, err)
	}
	r.snap.loaded = seqs
	for _, in := range r.inputs {
		in.stepped = seqs[in.cfg.Stream]
	}
	return nil
}

func (r *Runner) snapAt() schemas.Time {
	switch {
	case r.stopping, r.snap.busy, r.snap.encode != nil && r.snap.left > 0:
		return schemas.Never
	case r.snap.encode != nil:
		return 0 // nothing before it is outstanding: write it
	case r.urgent():
		return min(r.snap.held, r.snap.next)
	}
	return r.snap.next
}

// snapshotIfDue takes a snapshot when its time has come, and writes one that was
// taken as soon as nothing before it is outstanding.
func (r *Runner) snapshotIfDue(now schemas.Time) {
	s := &r.snap
	if s.encode == nil && !s.busy && (now >= s.next || now >= s.held && r.urgent()) {
		r.takeSnapshot(now)
	}
	if s.encode == nil || s.left > 0 || s.busy {
		return
	}
	encode, seqs, at := s.encode, s.seqs, s.at
	s.encode = nil
	if s.failed {
		s.missed(now)
		return // what was given up comes again from its input; this state has seen it
	}
	s.busy = true
	r.bus.wg.Go(func() {
		start := time.Now()
		state, err := encode()
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			err = r.cfg.Snapshots.Save(ctx, r.cfg.SnapshotActor, r.cfg.Shard, at, seqs, state)
		}
		took := time.Since(start)
		r.posted.call(func() { r.saved(err, took) })
	})
}

func (r *Runner) takeSnapshot(now schemas.Time) {
	s := &r.snap
	s.next = now + schemas.Time(r.cfg.SnapshotEvery)
	s.hurried, s.again = r.urgent(), false
	encode, err := r.freeze()
	if err != nil {
		r.cfg.Logger.Error("the actor cannot be saved", "service", r.cfg.Name, "error", err)
		s.missed(now)
		return
	}
	s.encode, s.at, s.seqs, s.left, s.failed = encode, now, r.seqs(), r.box.count, false
	s.gen++
}

// freezer is an actor with a state so large that its steps must not wait for its
// bytes: what Freeze returns makes them while the actor goes on.
type freezer interface{ Freeze() func() ([]byte, error) }

func (r *Runner) freeze() (func() ([]byte, error), error) {
	if f, ok := r.cfg.Actor.(freezer); ok {
		return f.Freeze(), nil
	}
	state, err := r.cfg.Actor.Snapshot(nil)
	return func() ([]byte, error) { return state, nil }, err
}

// hasty is an actor that says when its state should be saved without waiting for the
// next time: something left it that must not stay in an old snapshot. Taking a
// snapshot ends that.
type hasty interface{ SnapshotDue() bool }

func (r *Runner) urgent() bool {
	h, ok := r.cfg.Actor.(hasty)
	return ok && r.cfg.Snapshots != nil && (r.snap.again || h.SnapshotDue())
}

// missed notes that a snapshot was not written. One that the actor had asked for is
// tried again soon.
func (s *snapState) missed(now schemas.Time) {
	s.again, s.held = s.hurried, now+schemas.Time(time.Second)
}

// sequencer is an actor that knows better than the runner which inputs its
// snapshot contains: work that is still under way is not in it.
type sequencer interface{ Seqs() map[string]uint64 }

func (r *Runner) seqs() map[string]uint64 {
	if s, ok := r.cfg.Actor.(sequencer); ok {
		return s.Seqs()
	}
	out := map[string]uint64{}
	for _, in := range r.inputs {
		if in.stepped > 0 {
			out[in.cfg.Stream] = max(out[in.cfg.Stream], in.stepped)
		}
	}
	return out
}

// snapshotRest is how long, in multiples of the time that a snapshot took, the next
// one is put off at least: writing them takes a twentieth of one core at most.
const snapshotRest = 20

func (r *Runner) saved(err error, took time.Duration) {
	r.snap.busy = false
	r.snap.next = max(r.snap.next, r.cfg.Clock()+schemas.Time(snapshotRest*took))
	if err != nil {
		r.cfg.Logger.Error("snapshot not written", "service", r.cfg.Name, "error", err)
		r.snap.missed(r.cfg.Clock())
		return
	}
	r.stats.Snapshots.Add(1)
}

// lastSnapshot writes the final state when nothing is outstanding.
func (r *Runner) lastSnapshot() error {
	if r.cfg.Snapshots == nil || r.box.count > 0 {
		return nil
	}
	state, err := r.cfg.Actor.Snapshot(nil)
	if err != nil {
		return fmt.Errorf("jsrun: %s: saving the actor: %w", r.cfg.Name, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.StopTimeout)
	defer cancel()
	if err := r.cfg.Snapshots.Save(ctx, r.cfg.SnapshotActor, r.cfg.Shard, r.cfg.Clock(), maps.Clone(r.seqs()), state); err != nil {
		return fmt.Errorf("jsrun: %s: the last snapshot: %w", r.cfg.Name, err)
	}
	r.stats.Snapshots.Add(1)
	return nil
}
