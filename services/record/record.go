package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weir-dev/weir/schemas"
)

// ErrActor: the actor has more to it than a recording holds.
var ErrActor = errors.New("record: this actor cannot be recorded")

// Actor is an actor whose steps are recorded. What it answers is recorded before any
// hook of the runner changes it.
type Actor struct {
	inner schemas.Actor
	w     *writer
	last  schemas.Time // told last
}

var _ schemas.Actor = (*Actor)(nil)

// Actor begins the recording of an actor's life. Close ends it.
func (r *Recorder) Actor(a schemas.Actor, h Header) (*Actor, error) {
	// A runner asks some actors for more than schemas.Actor has. Their answers would
	// have to be recorded too; those that are recorded here have no such methods.
	switch a.(type) {
	case interface{ Freeze() func() ([]byte, error) }, interface{ SnapshotDue() bool }, interface{ Seqs() map[string]uint64 }:
		return nil, fmt.Errorf("%w: %T saves its state in its own way", ErrActor, a)
	}
	w, err := r.writer(h)
	if err != nil {
		return nil, err
	}
	return &Actor{inner: a, w: w}, nil
}

// Step hands the message on, with what came of it to the file.
func (a *Actor) Step(now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	a.last = now
	if a.w.stopped() {
		return a.inner.Step(now, in, out)
	}
	before := len(out)
	m, err := pack(in)
	out = a.inner.Step(now, in, out)
	if err != nil {
		a.w.stop(err.Error())
		return out
	}
	outs, err := packAll(out[before:])
	if err != nil {
		a.w.stop(err.Error())
		return out
	}
	a.w.line(&Line{T: int64(now), In: &m, Out: outs})
	return out
}

func packAll(ms []schemas.Msg) (out []Message, err error) {
	for i := range ms {
		m, err := pack(&ms[i])
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Next is the actor's.
func (a *Actor) Next() schemas.Time { return a.inner.Next() }

// Snapshot is the actor's; its digest is recorded, because making it may change the actor.
func (a *Actor) Snapshot(dst []byte) ([]byte, error) {
	before := len(dst)
	out, err := a.inner.Snapshot(dst)
	if err == nil {
		a.w.line(&Line{T: int64(a.last), Snapshot: digest(out[before:])})
	}
	return out, err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Restore is the actor's; the state is recorded.
func (a *Actor) Restore(b []byte) error {
	state := append([]byte{}, b...)
	if err := a.inner.Restore(b); err != nil {
		return err
	}
	a.w.line(&Line{T: int64(a.last), Restore: &state})
	return nil
}

// Close writes what is left. The actor may go on, unrecorded.
func (a *Actor) Close() error { return a.w.close() }

func (l *Line) encode() ([]byte, error) {
	b, err := json.Marshal(l)
	return append(b, '\n'), err
}
