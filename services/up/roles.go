package up

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

// Assign writes an executor's role, unless it has it already. Another writer who
// is faster makes it try again, a few times.
func Assign(ctx context.Context, nc *nats.Conn, cell, executor string, role schemas.Role, by string) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		a, seq, err := Assignment(ctx, js, cell, executor)
		if err == nil && a != nil && a.Role == role && len(a.Classes) == 0 {
			return nil
		}
		if err == nil {
			_, err = Write(ctx, js, cell, executor, &schemas.Assignment{Header: schemas.H(), Role: role, By: by, Reason: "set by " + by}, seq)
		}
		if err == nil {
			return nil
		}
		if try >= 50 || ctx.Err() != nil {
			return fmt.Errorf("assigning %s to %s: %w", role, executor, err)
		}
		select { // the stream may not be there yet
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Assignment reads an executor's role and its epoch; nil and 0 when it has none.
func Assignment(ctx context.Context, js jetstream.JetStream, cell, executor string) (*schemas.Assignment, uint64, error) {
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
	return a, m.Sequence, schemas.Decode(m.Data, a)
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
