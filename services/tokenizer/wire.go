package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-dev/weir/schemas"
)

// Requests and replies of large prompts do not fit one message as JSON: a turn has
// up to schemas.MaxBody bytes. They are compressed where that is so, and refused
// where even that is not enough.

// maxUnpacked bounds a message after decompression, in bytes: a turn's body and its
// tokens as JSON.
const maxUnpacked = 4 * schemas.MaxBody

// zstdMagic begins every frame of zstd (RFC 8878, section 3.1.1); JSON never does.
var zstdMagic = []byte{0x28, 0xB5, 0x2F, 0xFD}

// Pack encodes a request or reply for one message. The error wraps
// schemas.ErrTooLarge where it does not fit.
func Pack(m schemas.Message) ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %T: %w", schemas.ErrMessage, m, err)
	}
	if len(b) <= schemas.MaxMessage {
		return b, nil
	}
	if len(b) > maxUnpacked {
		return nil, fmt.Errorf("%w: %T has %d bytes, at most %d", schemas.ErrTooLarge, m, len(b), maxUnpacked)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	packed := enc.EncodeAll(b, nil)
	if err := enc.Close(); err != nil {
		return nil, err
	}
	if len(packed) > schemas.MaxMessage {
		return nil, fmt.Errorf("%w: %T has %d bytes and %d when compressed, at most %d", schemas.ErrTooLarge, m, len(b), len(packed), schemas.MaxMessage)
	}
	return packed, nil
}

// Unpack decodes what Pack made. Errors are those of schemas.Decode.
func Unpack(b []byte, m schemas.Message) error {
	if !bytes.HasPrefix(b, zstdMagic) {
		return schemas.Decode(b, m)
	}
	if len(b) > schemas.MaxMessage {
		return fmt.Errorf("%w: %T has %d bytes, at most %d", schemas.ErrTooLarge, m, len(b), schemas.MaxMessage)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return err
	}
	defer dec.Close()
	text, err := dec.DecodeAll(b, nil)
	if err != nil {
		return fmt.Errorf("%w: %T: %w", schemas.ErrMessage, m, err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return fmt.Errorf("%w: %T: %w", schemas.ErrMessage, m, err)
	}
	return m.Check()
}
