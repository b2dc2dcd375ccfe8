package jsrun

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Payloads keeps large bodies, compressed, in the object bucket PAYLOAD under
// their digest. Methods may be called from any goroutine.
type Payloads struct {
	bucket jetstream.ObjectStore
	enc    *zstd.Encoder
	dec    *zstd.Decoder
	max    int64
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
	return &Payloads{bucket: b, enc: enc, dec: dec, max: maxBytes}, nil
}

// Put stores a body and returns its reference. A body that is there already is
// not sent again. A full bucket gives ErrFull, a body above the bound
// schemas.ErrTooLarge.
func (p *Payloads) Put(ctx context.Context, body []byte) (schemas.PayloadRef, error) {
	n := int64(len(body))
	if n == 0 || n > p.max {
		return schemas.PayloadRef{}, fmt.Errorf("%w: a payload of %d bytes, allowed are 1 to %d", schemas.ErrTooLarge, n, p.max)
	}
	sum := sha256.Sum256(body)
	ref := schemas.PayloadRef{Digest: hex.EncodeToString(sum[:]), Bytes: n}
	if _, err := p.bucket.GetInfo(ctx, ref.Digest); err == nil {
		return ref, nil
	} else if !errors.Is(err, jetstream.ErrObjectNotFound) {
		return schemas.PayloadRef{}, fmt.Errorf("jsrun: looking for payload %s: %w", ref.Digest, err)
	}
	_, err := p.bucket.PutBytes(ctx, ref.Digest, p.enc.EncodeAll(body, nil))
	if err != nil {
		return schemas.PayloadRef{}, fmt.Errorf("storing payload %s: %w", ref.Digest, fullOr(err))
	}
	return ref, nil
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
	packed, err := p.bucket.GetBytes(ctx, ref.Digest)
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

// unpack decompresses exactly want bytes.
func (p *Payloads) unpack(packed []byte, want int64) ([]byte, error) {
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
