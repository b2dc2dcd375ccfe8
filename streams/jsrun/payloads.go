package jsrun

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Payloads keeps large bodies, compressed, in the object bucket PAYLOAD under
// their digest. Methods may be called from any goroutine.
type Payloads struct {
	js     jetstream.JetStream
	bucket jetstream.ObjectStore
	enc    *zstd.Encoder
	dec    *zstd.Decoder
	max    int64
	age    time.Duration // of the bucket; 0 keeps objects for ever
	known  knownObjects
}

// NewPayloads opens the bucket, which Provision makes. maxBytes bounds one body,
// uncompressed; 0 means schemas.MaxBody.
func NewPayloads(ctx context.Context, js jetstream.JetStream, maxBytes int64) (*Payloads, error) {
	if maxBytes <= 0 {
		maxBytes = schemas.MaxBody
	}
	b, err := js.ObjectStore(ctx, streams.PayloadBucket)
	if err != nil {
		return nil, fmt.Errorf("jsrun: bucket %s: %w", streams.PayloadBucket, err)
	}
	st, err := js.Stream(ctx, streams.PayloadStream)
	if err != nil {
		return nil, fmt.Errorf("jsrun: bucket %s: %w", streams.PayloadBucket, err)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, fmt.Errorf("jsrun: zstd: %w", err)
	}
	// The decoder's memory bound is the guard against a small object that
	// unpacks into a huge one.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(maxBytes)+1<<16))
	if err != nil {
		return nil, fmt.Errorf("jsrun: zstd: %w", err)
	}
	return &Payloads{js: js, bucket: b, enc: enc, dec: dec, max: maxBytes, age: st.CachedInfo().Config.MaxAge}, nil
}

// Put stores a body and returns its reference. A body that is there already is
// not sent again, unless less than half of the bucket's age is left to it: whoever
// refers to it now may read it much later. A full bucket gives ErrFull, a body
// above the bound schemas.ErrTooLarge.
func (p *Payloads) Put(ctx context.Context, body []byte) (schemas.PayloadRef, error) {
	n := int64(len(body))
	if n == 0 || n > p.max {
		return schemas.PayloadRef{}, fmt.Errorf("%w: a payload of %d bytes, allowed are 1 to %d", schemas.ErrTooLarge, n, p.max)
	}
	sum := sha256.Sum256(body)
	ref := schemas.PayloadRef{Digest: hex.EncodeToString(sum[:]), Bytes: n}
	info, err := p.find(ctx, ref.Digest)
	if err != nil || info != nil && p.lasts(info) {
		return ref, err
	}
	return ref, p.store(ctx, ref.Digest, p.pack(body))
}

// chunkBytes is the size of an object's messages, as the client library has it.
const chunkBytes = 128 << 10

// store writes an object as the client library does, with one difference: what
// announces the object is published when all of its chunks are acknowledged. The
// library publishes all at once; a bucket that is nearly full then refuses chunks
// and takes the small announcement, and the object is there and cannot be read.
func (p *Payloads) store(ctx context.Context, name string, packed []byte) error {
	id := nuid.Next()
	chunks := 0
	for part := range slices.Chunk(packed, chunkBytes) {
		if _, err := p.js.Publish(ctx, chunkSubject(id), part); err != nil {
			return p.failed(ctx, name, id, err)
		}
		chunks++
	}
	sum := sha256.Sum256(packed)
	meta, err := json.Marshal(jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}},
		Bucket:     streams.PayloadBucket, NUID: id, Size: uint64(len(packed)), Chunks: uint32(chunks),
		Digest: "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:]),
	})
	if err != nil {
		return err
	}
	m := nats.NewMsg(metaSubject(name))
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	m.Data = meta
	if _, err := p.js.PublishMsg(ctx, m); err != nil {
		return p.failed(ctx, name, id, err)
	}
	p.known.add(name, id)
	return nil
}

// failed removes what a failed store has left.
func (p *Payloads) failed(ctx context.Context, name, id string, err error) error {
	return errors.Join(fmt.Errorf("storing payload %s: %w", name, fullOr(err)), p.purge(ctx, chunkSubject(id)))
}

func chunkSubject(id string) string { return "$O." + streams.PayloadBucket + ".C." + id }

func metaSubject(name string) string {
	return "$O." + streams.PayloadBucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func (p *Payloads) purge(ctx context.Context, subject string) error {
	s, err := p.js.Stream(ctx, streams.PayloadStream)
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

// whole reports whether every chunk of an object is stored. One may have aged out
// just before what announces it.
func (p *Payloads) whole(ctx context.Context, info *jetstream.ObjectInfo) (bool, error) {
	s, err := p.js.Stream(ctx, streams.PayloadStream)
	if err != nil {
		return false, fmt.Errorf("jsrun: bucket %s: %w", streams.PayloadBucket, err)
	}
	si, err := s.Info(ctx, jetstream.WithSubjectFilter(chunkSubject(info.NUID)))
	if err != nil {
		return false, fmt.Errorf("jsrun: bucket %s: %w", streams.PayloadBucket, err)
	}
	return si.State.Subjects[chunkSubject(info.NUID)] >= uint64(info.Chunks), nil
}

// fullOr marks errors that mean that a limit of storage was met.
func fullOr(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch int(api.ErrorCode) {
		case codeStoreFailed, codeAccountLimit, codeInsufficient, codeMemoryLimit, codeStorageLimit:
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	return err
}

// Get reads a body back and checks it: size first, then digest.
func (p *Payloads) Get(ctx context.Context, ref schemas.PayloadRef) ([]byte, error) {
	if ref.Bytes <= 0 || ref.Bytes > p.max {
		return nil, fmt.Errorf("%w: payload %s says it has %d bytes, allowed are 1 to %d", schemas.ErrTooLarge, ref.Digest, ref.Bytes, p.max)
	}
	info, err := p.bucket.GetInfo(ctx, ref.Digest)
	var packed []byte
	if err == nil {
		if info.Size > uint64(p.max)+1<<16 {
			return nil, fmt.Errorf("%w: %s has %d bytes in the bucket, at most %d are read", schemas.ErrTooLarge, ref.Digest, info.Size, p.max)
		}
		var whole bool
		if whole, err = p.whole(ctx, info); err == nil && !whole {
			p.known.drop(ref.Digest)
			return nil, fmt.Errorf("%w: parts of %s are missing", ErrPayload, ref.Digest) // reading would wait for them
		}
	}
	if err == nil {
		packed, err = p.bucket.GetBytes(ctx, ref.Digest)
	}
	if err != nil {
		if errors.Is(err, jetstream.ErrObjectNotFound) {
			return nil, fmt.Errorf("%w: %s is not in the bucket; it may have aged out", ErrPayload, ref.Digest)
		}
		return nil, fmt.Errorf("jsrun: reading payload %s: %w", ref.Digest, err)
	}
	body, err := p.unpack(packed, ref.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPayload, ref.Digest, err)
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != ref.Digest {
		return nil, fmt.Errorf("%w: the content of %s has another digest", ErrPayload, ref.Digest)
	}
	return body, nil
}

// unpack makes exactly want bytes of what was stored, which is the body itself
// where compression does not help, and when another client than weir's stored it.
func (p *Payloads) unpack(packed []byte, want int64) ([]byte, error) {
	if int64(len(packed)) == want && !bytes.HasPrefix(packed, zstdMagic) {
		return packed, nil
	}
	body, err := p.dec.DecodeAll(packed, make([]byte, 0, min(want, 1<<20)))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) != want {
		return nil, fmt.Errorf("unpacks to %d bytes, expected %d", len(body), want)
	}
	return body, nil
}

// compress and decompress are the plain forms for snapshots.
func compress(b []byte) ([]byte, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	return enc.EncodeAll(b, nil), nil
}

func decompress(b []byte, limit int64) ([]byte, error) {
	dec, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	out, err := io.ReadAll(io.LimitReader(dec, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(out)) > limit {
		return nil, fmt.Errorf("%w: unpacks to more than %d bytes", schemas.ErrTooLarge, limit)
	}
	return out, nil
}
