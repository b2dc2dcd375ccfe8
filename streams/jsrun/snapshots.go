package jsrun

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// MaxState bounds a snapshot, uncompressed, in bytes.
const MaxState = 256 << 20

// partBytes is the size of a piece; as JSON it is a third larger.
const partBytes = 512 << 10

// Snapshots keeps actor states on snap.<actor>.<shard>. Small states travel in
// the message, larger ones in pieces beside it. They do not go to the payload
// bucket: what is there ages out, and a snapshot every few seconds would fill it.
type Snapshots struct {
	js jetstream.JetStream
}

// NewSnapshots opens the stream, which Provision makes.
func NewSnapshots(ctx context.Context, js jetstream.JetStream) (*Snapshots, error) {
	if _, err := js.Stream(ctx, streams.Snap); err != nil {
		return nil, fmt.Errorf("jsrun: stream %s: %w", streams.Snap, err)
	}
	return &Snapshots{js: js}, nil
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
	} else if snap.Parts, err = s.savePieces(ctx, actor, shard, now, packed); err != nil {
		return err
	}
	return s.put(ctx, actor, shard, snap)
}

// savePieces writes the pieces over those of the last snapshot but one.
func (s *Snapshots) savePieces(ctx context.Context, actor, shard string, now schemas.Time, packed []byte) (*schemas.SnapParts, error) {
	sum := sha256.Sum256(packed)
	p := &schemas.SnapParts{Set: "a", Bytes: int64(len(packed)), Digest: hex.EncodeToString(sum[:])}
	// A last snapshot that cannot be read keeps nothing that is worth its place.
	if last, err := s.get(ctx, actor, shard); err == nil && last != nil && last.Parts != nil && last.Parts.Set == "a" {
		p.Set = "b"
	} else if err != nil && !errors.Is(err, schemas.ErrMessage) {
		return nil, err
	}
	for piece := range slices.Chunk(packed, partBytes) {
		part := &schemas.Snap{Header: schemas.H(), Seqs: map[string]uint64{}, AtNS: int64(now), State: piece}
		if err := s.put(ctx, actor, partShard(shard, p.Set, p.N), part); err != nil {
			return nil, err
		}
		p.N++
	}
	return p, nil
}

// partShard takes the place of the shard in a piece's subject.
func partShard(shard, set string, i int) string { return shard + "-" + set + "-" + strconv.Itoa(i) }

func (s *Snapshots) put(ctx context.Context, actor, shard string, snap *schemas.Snap) error {
	body, err := schemas.Encode(snap)
	if err != nil {
		return err
	}
	if _, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: schemas.SnapSubject(actor, shard), Data: body}); err != nil {
		return fmt.Errorf("storing snapshot %s/%s: %w", actor, shard, fullOr(err))
	}
	return nil
}

// get returns the message of a snapshot or piece, nil when there is none.
func (s *Snapshots) get(ctx context.Context, actor, shard string) (*schemas.Snap, error) {
	st, err := s.js.Stream(ctx, streams.Snap)
	if err != nil {
		return nil, fmt.Errorf("jsrun: stream %s: %w", streams.Snap, err)
	}
	m, err := st.GetLastMsgForSubject(ctx, schemas.SnapSubject(actor, shard))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("jsrun: reading snapshot %s/%s: %w", actor, shard, err)
	}
	snap := new(schemas.Snap)
	if err := schemas.Decode(m.Data, snap); err != nil {
		return nil, fmt.Errorf("jsrun: snapshot %s/%s: %w", actor, shard, err)
	}
	return snap, nil
}

// Load returns the last state and its sequences; state is nil when there is none.
func (s *Snapshots) Load(ctx context.Context, actor, shard string) (state []byte, seqs map[string]uint64, err error) {
	snap, err := s.get(ctx, actor, shard)
	if snap == nil || err != nil {
		return nil, nil, err
	}
	packed := snap.State
	if snap.Parts != nil {
		if packed, err = s.pieces(ctx, actor, shard, snap.Parts); err != nil {
			return nil, nil, err
		}
	}
	if state, err = decompress(packed, MaxState); err != nil {
		return nil, nil, fmt.Errorf("jsrun: snapshot %s/%s: %w", actor, shard, err)
	}
	if state == nil {
		state = []byte{}
	}
	return state, snap.Seqs, nil
}

// Seqs returns the sequences of the last snapshot without reading its state.
func (s *Snapshots) Seqs(ctx context.Context, actor, shard string) (map[string]uint64, error) {
	snap, err := s.get(ctx, actor, shard)
	if snap == nil || err != nil {
		return nil, err
	}
	return snap.Seqs, nil
}

// pieces puts a state together and checks it.
func (s *Snapshots) pieces(ctx context.Context, actor, shard string, p *schemas.SnapParts) ([]byte, error) {
	var packed []byte
	for i := range p.N {
		part, err := s.get(ctx, actor, partShard(shard, p.Set, i))
		if err != nil {
			return nil, err
		}
		if part == nil {
			return nil, fmt.Errorf("%w: snapshot %s/%s lacks piece %d of %d", schemas.ErrMessage, actor, shard, i, p.N)
		}
		packed = append(packed, part.State...)
	}
	if sum := sha256.Sum256(packed); int64(len(packed)) != p.Bytes || hex.EncodeToString(sum[:]) != p.Digest {
		return nil, fmt.Errorf("%w: the pieces of snapshot %s/%s are not those that were written", schemas.ErrMessage, actor, shard)
	}
	return packed, nil
}

// Rewrite moves the last snapshots of all actors into new files and erases the pieces
// of those before them, so that nothing of an earlier state stays on the disk. At
// every moment the last snapshot of each actor is whole. The error wraps ErrFull when
// the stream has no room for it.
func (s *Snapshots) Rewrite(ctx context.Context) error {
	_, err := Rewrite(ctx, s.js, streams.Snap, schemas.SnapSubject("rewrite", "filler"), func(m *jetstream.RawStreamMsg) (bool, error) {
		return s.stale(ctx, m)
	})
	return err
}

// stale: the message is a piece that the actor's last snapshot does not name, and was
// there before it. A piece that came later belongs to the next one.
func (s *Snapshots) stale(ctx context.Context, m *jetstream.RawStreamMsg) (bool, error) {
	sub, err := schemas.ParseSubject(m.Subject)
	if err != nil {
		return false, nil //nolint:nilerr // none of weir's; it stays
	}
	piece := pieceName.FindStringSubmatch(sub.Get("shard"))
	if piece == nil {
		return false, nil
	}
	st, err := s.js.Stream(ctx, streams.Snap)
	if err != nil {
		return false, fmt.Errorf("jsrun: stream %s: %w", streams.Snap, err)
	}
	head, err := st.GetLastMsgForSubject(ctx, schemas.SnapSubject(sub.Get("actor"), piece[1]))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil // the first snapshot is being written
	}
	if err != nil {
		return false, fmt.Errorf("jsrun: reading the snapshot of %s: %w", m.Subject, err)
	}
	var snap schemas.Snap
	if err := schemas.Decode(head.Data, &snap); err != nil {
		return false, nil //nolint:nilerr // nothing is removed on the word of what cannot be read
	}
	i, err := strconv.Atoi(piece[3])
	named := err != nil || snap.Parts != nil && snap.Parts.Set == piece[2] && i < snap.Parts.N
	return !named && m.Sequence < head.Sequence, nil
}

// pieceName is the shard of a piece, see partShard.
var pieceName = regexp.MustCompile(`^(.+)-([ab])-([0-9]+)$`)
