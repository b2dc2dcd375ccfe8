package erase

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// mediaRef finds references to images in a body, whatever its form.
var mediaRef = regexp.MustCompile(regexp.QuoteMeta(turns.MediaScheme) + "[0-9a-f]{64}")

// refs notes the objects that a turn refers to.
func (e *eraser) refs(ctx context.Context, turn *schemas.Turn, raw []byte) error {
	for _, digest := range digests(raw) {
		if err := e.object(ctx, digest); err != nil {
			return err
		}
	}
	if turn.BodyRef == nil {
		return nil
	}
	p, err := jsrun.NewPayloads(ctx, e.js, 0)
	if err != nil {
		return err
	}
	body, err := p.Get(ctx, *turn.BodyRef)
	if err != nil && !errors.Is(err, jsrun.ErrPayload) && !errors.Is(err, schemas.ErrTooLarge) {
		return err
	}
	for _, digest := range digests(body) {
		if err := e.object(ctx, digest); err != nil {
			return err
		}
	}
	return e.object(ctx, turn.BodyRef.Digest)
}

// digests are the images that a body refers to.
func digests(body []byte) (out []string) {
	for _, m := range mediaRef.FindAll(body, -1) {
		out = append(out, strings.TrimPrefix(string(m), turns.MediaScheme))
	}
	return out
}

// object notes an object and where its chunks are. A name that is no digest is none
// that weir or a caller may refer to.
func (e *eraser) object(ctx context.Context, digest string) error {
	digest = strings.TrimPrefix(digest, turns.MediaScheme)
	digest, _, _ = strings.Cut(digest, "?")
	if b, err := hex.DecodeString(digest); err != nil || len(b) != 32 {
		return nil //nolint:nilerr // see above
	}
	if e.plan.Objects[digest] != "" {
		return nil
	}
	id, err := jsrun.PayloadChunks(ctx, e.js, digest)
	if err != nil || id == "" {
		return err
	}
	e.plan.Objects[digest] = id
	return nil
}

// objects erases the objects of the session that no other session refers to.
func (e *eraser) objects(ctx context.Context) error {
	used, err := e.others(ctx)
	if err != nil {
		return err
	}
	for digest, id := range e.plan.Objects {
		if used[digest] {
			e.report.Kept++
			continue
		}
		found, err := jsrun.WipePayload(ctx, e.js, digest, id)
		if err != nil {
			return err
		}
		if found {
			e.report.Objects++
		}
	}
	return nil
}

// allTurns are the stored subjects of all turns: agent.<partition>.<tenant>.<session>.turn.
const allTurns = "agent.*.*.*." + string(schemas.EventTurn)

// others finds which of the objects turns of other sessions refer to. Lineage knows
// of those that it has read; AGENT has what it has not. Bodies of others in the bucket
// are read for images only while some are in question.
func (e *eraser) others(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	if len(e.plan.Objects) == 0 {
		return used, nil
	}
	s, err := e.js.Stream(ctx, streams.Agent)
	if err != nil {
		return nil, err
	}
	p, err := jsrun.NewPayloads(ctx, e.js, 0)
	if err != nil {
		return nil, err
	}
	note := func(digest string) {
		if e.plan.Objects[digest] != "" {
			used[digest] = true
		}
	}
	err = jsrun.Each(ctx, s, allTurns, 1, s.CachedInfo().State.LastSeq, func(m *jetstream.RawStreamMsg) error {
		for _, d := range digests(m.Data) {
			note(d)
		}
		turn := new(schemas.Turn)
		if schemas.Decode(m.Data, turn) != nil || turn.BodyRef == nil {
			return nil
		}
		note(turn.BodyRef.Digest)
		body, err := p.Get(ctx, *turn.BodyRef)
		if err != nil {
			if errors.Is(err, jsrun.ErrPayload) || errors.Is(err, schemas.ErrTooLarge) {
				return nil
			}
			return err
		}
		for _, d := range digests(body) {
			note(d)
		}
		return nil
	})
	return used, err
}

// files makes NATS give up the files in which bytes of the session may still lie
// although its messages are gone: earlier snapshots and checkpoints, and turns whose
// job was acknowledged.
func (e *eraser) files(ctx context.Context) error {
	snaps, err := jsrun.NewSnapshots(ctx, e.js)
	if err != nil {
		return err
	}
	if err := e.tolerate(streams.Snap, snaps.Rewrite(ctx)); err != nil {
		return err
	}
	ready, err := e.js.Stream(ctx, streams.Ready)
	if err != nil {
		return err
	}
	if n := ready.CachedInfo().State.Msgs; n > 0 {
		// Jobs of others stand in the same file; it goes when they have ended.
		_, err := jsrun.Roll(ctx, e.js, streams.Ready, schemas.ReadySubject("erase", "filler", "filler", "filler"))
		if err := e.tolerate(streams.Ready, err); err != nil {
			return err
		}
		e.report.Left = append(e.report.Left, fmt.Sprintf("READY: the file of prompts goes when %d turns of others have ended", n))
	}
	results, err := e.js.Stream(ctx, streams.Result)
	if err != nil {
		return err
	}
	_, err = jsrun.Rewrite(ctx, e.js, streams.Ckpt, schemas.CkptSubject("erase", "filler", "filler"), func(m *jetstream.RawStreamMsg) (bool, error) {
		return ended(ctx, results, m.Subject)
	})
	return e.tolerate(streams.Ckpt, err)
}

// ended: a turn that has a result needs its checkpoint no more.
func ended(ctx context.Context, results jetstream.Stream, ckpt string) (bool, error) {
	sub, err := schemas.ParseSubject(ckpt)
	if err != nil {
		return false, nil //nolint:nilerr // it is none of weir's and stays
	}
	_, err = results.GetLastMsgForSubject(ctx, schemas.ResultSubject(sub.Get("tenant"), sub.Get("session"), sub.Get("turn")))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, err
}

// tolerate reports a stream that is too full to be rewritten instead of failing: it
// frees its files by itself as it goes on.
func (e *eraser) tolerate(stream string, err error) error {
	if !errors.Is(err, jsrun.ErrFull) {
		return err
	}
	e.report.Left = append(e.report.Left, fmt.Sprintf("%s: %v; what was overwritten stays in its files until the server compacts them", stream, err))
	return nil
}
