package assign

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// ReadMode returns the mode that was set for a cell's planner and its sequence; nil and
// 0 when nobody ever set one, which means act; nil and its sequence with ErrUnreadable.
func ReadMode(ctx context.Context, js jetstream.JetStream, cell string) (*schemas.PlannerMode, uint64, error) {
	s, err := js.Stream(ctx, streams.Role)
	if err != nil {
		return nil, 0, err
	}
	m, err := s.GetLastMsgForSubject(ctx, schemas.ModeSubject(cell))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	mode := &schemas.PlannerMode{}
	if err := schemas.Decode(m.Data, mode); err != nil {
		return nil, m.Sequence, fmt.Errorf("the last message on %s, sequence %d, %w: %w", m.Subject, m.Sequence, ErrUnreadable, err)
	}
	return mode, m.Sequence, nil
}

// WriteMode sets the mode if seq is still the sequence of the last one.
func WriteMode(ctx context.Context, js jetstream.JetStream, cell string, m *schemas.PlannerMode, seq uint64) error {
	body, err := schemas.Encode(m)
	if err != nil {
		return err
	}
	_, err = js.Publish(ctx, schemas.ModeSubject(cell), body, jetstream.WithExpectLastSequencePerSubject(seq))
	return err
}
