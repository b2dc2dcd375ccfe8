// Package assign reads and writes executors' roles in the ROLE stream. An
// assignment's sequence there is its epoch; every write names the one that it
// replaces, so that of two writers one is refused.
package assign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Tries of Role and First, and the pause between them: the stream may not be
// there yet, or another writer was faster.
const (
	tries = 50
	pause = 50 * time.Millisecond
)

// ErrUnreadable: the last assignment or mode is not one, or one of a later version. It is
// returned together with its sequence, so that it can be replaced.
var ErrUnreadable = errors.New("cannot be read")

// Unread leaves out ErrUnreadable, for writers who replace whatever is there.
func Unread(err error) error {
	if errors.Is(err, ErrUnreadable) {
		return nil
	}
	return err
}

// Role writes an executor's role and pins it: a planner leaves alone what people set.
// It writes nothing when the role is in force already. Another writer who is faster
// makes it try again, a few times.
func Role(ctx context.Context, nc *nats.Conn, cell, executor string, role schemas.Role, by string) error {
	return attempt(ctx, nc, executor, role, func(js jetstream.JetStream) error {
		a, seq, err := Read(ctx, js, cell, executor)
		if err = Unread(err); err != nil || (a != nil && a.Role == role && a.Pinned && len(a.Classes) == 0) {
			return err
		}
		_, err = Write(ctx, js, cell, executor, &schemas.Assignment{Header: schemas.H(), Role: role, Pinned: true, By: by, Reason: "set by " + by}, seq)
		return err
	})
}

// Start writes the role with which an executor begins, for a planner to change, and
// returns the epoch that must be in force. What keep accepts of an earlier run stays.
func Start(ctx context.Context, nc *nats.Conn, cell, executor string, role schemas.Role, by string, keep func(*schemas.Assignment) bool) (epoch uint64, err error) {
	err = attempt(ctx, nc, executor, role, func(js jetstream.JetStream) error {
		a, seq, err := Read(ctx, js, cell, executor)
		if err = Unread(err); err != nil {
			return err
		}
		if epoch = seq; a != nil && (keep(a) || a.Role == role && len(a.Classes) == 0 && !a.Pinned) {
			return nil
		}
		epoch, err = Write(ctx, js, cell, executor, &schemas.Assignment{Header: schemas.H(), Role: role, By: by, Reason: "first role"}, seq)
		return err
	})
	return epoch, err
}

// First gives an executor a role if it has none. A role that somebody assigned
// before stays, so an executor that starts again does not undo it.
func First(ctx context.Context, nc *nats.Conn, cell, executor string, role schemas.Role, by string) error {
	return attempt(ctx, nc, executor, role, func(js jetstream.JetStream) error {
		a, seq, err := Read(ctx, js, cell, executor)
		if err = Unread(err); err != nil || a != nil {
			return err
		}
		_, err = Write(ctx, js, cell, executor, &schemas.Assignment{Header: schemas.H(), Role: role, By: by, Reason: "first role"}, seq)
		return err
	})
}

// attempt repeats f until it succeeds, with a bound.
func attempt(ctx context.Context, nc *nats.Conn, executor string, role schemas.Role, f func(jetstream.JetStream) error) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		if err = f(js); err == nil {
			return nil
		}
		if try >= tries || ctx.Err() != nil {
			return fmt.Errorf("assigning %s to %s: %w", role, executor, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// Read returns an executor's assignment and its epoch; nil and 0 when it has none, nil
// and its sequence with ErrUnreadable.
func Read(ctx context.Context, js jetstream.JetStream, cell, executor string) (*schemas.Assignment, uint64, error) {
	s, err := js.Stream(ctx, streams.Role)
	if err != nil {
		return nil, 0, err
	}
	m, err := s.GetLastMsgForSubject(ctx, schemas.RoleSubject(cell, executor))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	a := &schemas.Assignment{}
	if err := schemas.Decode(m.Data, a); err != nil {
		return nil, m.Sequence, fmt.Errorf("the last assignment of %s, epoch %d, %w: %w", executor, m.Sequence, ErrUnreadable, err)
	}
	return a, m.Sequence, nil
}

// Write publishes an assignment if seq is still the last one, and returns its epoch.
func Write(ctx context.Context, js jetstream.JetStream, cell, executor string, a *schemas.Assignment, seq uint64) (uint64, error) {
	body, err := schemas.Encode(a)
	if err != nil {
		return 0, err
	}
	ack, err := js.Publish(ctx, schemas.RoleSubject(cell, executor), body, jetstream.WithExpectLastSequencePerSubject(seq))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}
