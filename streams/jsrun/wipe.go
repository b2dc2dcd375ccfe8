package jsrun

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/streams"
)

// What NATS keeps in its files after a delete. A stream's messages lie in files of at
// most 8 MiB, one after the other, and a file goes when nothing in it is left.
//
//	secure delete    the message's bytes are overwritten and the file is written anew
//	any other        (delete, purge, age, a newer message of the same subject, an
//	                 acknowledged job): the bytes stay until all of the file is dead, or
//	                 until half of it is and the server compacts it
//
// So a message that still stands is erased by a secure delete, and one that is gone
// from the stream but not from its file by making that file the last one no more and
// moving what lives in it.

// fileBytes is the size of a file at which the server begins another one.
const fileBytes = 8 << 20

// fillerBytes is the size of one filler message.
const fillerBytes = 768 << 10

// Each calls f with every message of a stream on a subject (which may have
// wildcards), from sequence from up to and with to, in order. A message that is
// removed meanwhile is left out.
func Each(ctx context.Context, s jetstream.Stream, subject string, from, to uint64, f func(*jetstream.RawStreamMsg) error) error {
	for seq := max(from, 1); seq <= to; {
		m, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("jsrun: reading %s: %w", subject, err)
		}
		if m.Sequence > to {
			return nil
		}
		if err := f(m); err != nil {
			return err
		}
		seq = m.Sequence + 1
	}
	return nil
}

// Wipe removes the messages on a subject up to and with a sequence and overwrites
// their bytes. It returns how many there were.
func Wipe(ctx context.Context, s jetstream.Stream, subject string, to uint64) (n int, err error) {
	err = Each(ctx, s, subject, 1, to, func(m *jetstream.RawStreamMsg) error {
		if err := s.SecureDeleteMsg(ctx, m.Sequence); err != nil {
			return fmt.Errorf("jsrun: removing message %d of %s: %w", m.Sequence, s.CachedInfo().Config.Name, err)
		}
		n++
		return nil
	})
	return n, err
}

// Roll lets the server begin a new file for a stream, by storing filler on a subject
// that nobody reads, and removing it. The last file from before then goes as soon as
// nothing of it is left. mark is the first sequence of the new time. A memory stream
// has no files, so nothing is done. The error wraps ErrFull when there is no room.
func Roll(ctx context.Context, js jetstream.JetStream, stream, filler string) (mark uint64, err error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("jsrun: stream %s: %w", stream, err)
	}
	info := s.CachedInfo()
	if info.Config.Storage != jetstream.FileStorage {
		return info.State.LastSeq + 1, nil
	}
	if most := info.Config.MaxBytes; most > 0 && info.State.Bytes+2*fileBytes > uint64(most) {
		return 0, fmt.Errorf("%w: stream %s holds %d of %d bytes, so its files cannot be changed now", ErrFull, stream, info.State.Bytes, most)
	}
	body := make([]byte, fillerBytes)
	_, _ = rand.Read(body) // never fails, see its documentation
	var last uint64
	for sent := 0; sent <= fileBytes; sent += fillerBytes {
		ack, err := js.Publish(ctx, filler, body)
		if err != nil {
			return 0, fmt.Errorf("jsrun: filling stream %s: %w", stream, fullOr(err))
		}
		if last = ack.Sequence; mark == 0 {
			mark = last
		}
	}
	return mark, s.Purge(ctx, jetstream.WithPurgeSubject(filler))
}

// Rewrite moves what a stream with one message per subject keeps into new files, so
// that nothing stays on the disk of what was overwritten. Messages for which drop is
// true are erased instead. A message that is written by its owner meanwhile is left
// alone: it is in a new file already.
func Rewrite(ctx context.Context, js jetstream.JetStream, stream, filler string, drop func(*jetstream.RawStreamMsg) (bool, error)) (dropped int, err error) {
	mark, err := Roll(ctx, js, stream, filler)
	if err != nil {
		return 0, err
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("jsrun: stream %s: %w", stream, err)
	}
	err = Each(ctx, s, ">", 1, mark, func(m *jetstream.RawStreamMsg) error {
		gone, err := drop(m)
		if err != nil {
			return err
		}
		if gone {
			dropped++
			return s.SecureDeleteMsg(ctx, m.Sequence)
		}
		return move(ctx, js, m)
	})
	return dropped, err
}

// move stores a message anew on its subject, unless a newer one is there.
func move(ctx context.Context, js jetstream.JetStream, m *jetstream.RawStreamMsg) error {
	out := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
	for k, v := range m.Header {
		if !strings.HasPrefix(k, "Nats-") {
			out.Header[k] = v
		}
	}
	_, err := js.PublishMsg(ctx, out, jetstream.WithExpectLastSequencePerSubject(m.Sequence))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return nil
	}
	if err != nil {
		return fmt.Errorf("jsrun: moving %s: %w", m.Subject, fullOr(err))
	}
	return nil
}

// PayloadChunks returns the id under which the chunks of a payload object lie; ""
// when it is not in the bucket.
func PayloadChunks(ctx context.Context, js jetstream.JetStream, digest string) (id string, err error) {
	bucket, err := js.ObjectStore(ctx, streams.PayloadBucket)
	if err != nil {
		return "", fmt.Errorf("jsrun: bucket %s: %w", streams.PayloadBucket, err)
	}
	info, err := bucket.GetInfo(ctx, digest, jetstream.GetObjectInfoShowDeleted())
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("jsrun: looking for payload %s: %w", digest, err)
	}
	return info.NUID, nil
}

// WipePayload erases a payload object whose chunks lie under id: first what announces
// it, so that nobody finds half of it, then the chunks. An object that was stored
// anew under that digest meanwhile stays. found is false when nothing was there.
func WipePayload(ctx context.Context, js jetstream.JetStream, digest, id string) (found bool, err error) {
	now, err := PayloadChunks(ctx, js, digest)
	if err != nil {
		return false, err
	}
	s, err := js.Stream(ctx, streams.PayloadStream)
	if err != nil {
		return false, fmt.Errorf("jsrun: bucket %s: %w", streams.PayloadBucket, err)
	}
	last := s.CachedInfo().State.LastSeq
	if now == id {
		if _, err := Wipe(ctx, s, metaSubject(digest), last); err != nil {
			return false, err
		}
	}
	n, err := Wipe(ctx, s, chunkSubject(id), last)
	return n > 0, err
}
