package jsrun

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// MaxState bounds a snapshot, uncompressed, in bytes.
const MaxState = 256 << 20

// Snapshots keeps actor states on snap.<actor>.<shard>. Small states travel in
// the message; larger ones go to the payload bucket.
type Snapshots struct {
	js       jetstream.JetStream
	payloads *Payloads
}

// NewSnapshots opens the stream and the bucket, which Provision makes.
func NewSnapshots(ctx context.Context, js jetstream.JetStream) (*Snapshots, error) {
	p, err := NewPayloads(ctx, js, MaxState)
	if err != nil {
		return nil, err
	}
	return &Snapshots{js: js, payloads: p}, nil
}

// Save writes a state with the last input sequences that it contains, by stream.
func (s *Snapshots) Save(ctx context.Context, actor, shard string, now schemas.Time, seqs map[string]uint64, state []byte) error {
	if len(state) > MaxState {
		return fmt.Errorf("%w: the state of %s/%s has %d bytes, at most %d", schemas.ErrTooLarge, actor, shard, len(state), MaxState)
	}
	snap := &schemas.Snap{Header: schemas.H(), Seqs: maps.Clone(seqs), AtNS: int64(now)}
	packed, err := compress(state)
	if err != nil {
		return fmt.Errorf("jsrun: compressing a snapshot: %w", err)
	}
	if len(packed) <= schemas.PayloadThreshold {
		snap.State = packed
	} else {
		ref, err := s.payloads.Put(ctx, state)
		if err != nil {
			return err
		}
		snap.Ref = &ref
	}
	body, err := schemas.Encode(snap)
	if err != nil {
		return err
	}
	if _, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: schemas.SnapSubject(actor, shard), Data: body}); err != nil {
		return fmt.Errorf("storing snapshot %s/%s: %w", actor, shard, fullOr(err))
	}
	return nil
}

// Load returns the last state and its sequences; state is nil when there is none.
func (s *Snapshots) Load(ctx context.Context, actor, shard string) (state []byte, seqs map[string]uint64, err error) {
	st, err := s.js.Stream(ctx, streams.Snap)
	if err != nil {
		return nil, nil, fmt.Errorf("jsrun: stream %s: %w", streams.Snap, err)
	}
	m, err := st.GetLastMsgForSubject(ctx, schemas.SnapSubject(actor, shard))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("jsrun: reading snapshot %s/%s: %w", actor, shard, err)
	}
	var snap schemas.Snap
	if err := schemas.Decode(m.Data, &snap); err != nil {
		return nil, nil, fmt.Errorf("jsrun: snapshot %s/%s: %w", actor, shard, err)
	}
	if snap.Ref != nil {
		state, err = s.payloads.Get(ctx, *snap.Ref)
	} else {
		state, err = decompress(snap.State, MaxState)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("jsrun: snapshot %s/%s: %w", actor, shard, err)
	}
	if state == nil {
		state = []byte{}
	}
	return state, snap.Seqs, nil
}
