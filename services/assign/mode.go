package assign

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// ReadMode returns the mode that was set for a cell's planner and its sequence; nil and
// 0 when nobody ever set one, which means act.
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
	return mode, m.Sequence, schemas.Decode(m.Data, mode)
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
