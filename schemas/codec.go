package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Version is the version of the contract. Every message carries it as "v".
const Version = 1

// MaxMessage is the size bound of one message on the bus in bytes. It stays
// below the default max_payload of NATS (1 MiB), headers included.
const MaxMessage = 1000 << 10

// PayloadThreshold is the body size in bytes above which a body goes,
// compressed, into the PAYLOAD bucket and the message carries its digest.
const PayloadThreshold = 256 << 10

// Message is implemented by every type that travels on the bus.
type Message interface {
	// Check reports the first field that is missing or out of range.
	Check() error
	version() int
}

// Header is embedded by every message.
type Header struct {
	V int `json:"v" jsonschema:"minimum=1,maximum=1"`
}

func (h Header) version() int { return h.V }

// H is the header of the current version.
func H() Header { return Header{V: Version} }

// Encode checks a message and turns it into JSON. An error names the field; a
// message above MaxMessage is refused with ErrTooLarge, so that no publish ever
// meets the server's limit.
func Encode(m Message) ([]byte, error) {
	if err := checkVersion(m); err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %T: %w", ErrMessage, m, err)
	}
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("%w: %T has %d bytes, at most %d", ErrTooLarge, m, len(b), MaxMessage)
	}
	return b, nil
}

// Decode reads exactly one message of m's type. It refuses a message that is too
// large, of another version, with unknown fields, or with a field out of range.
func Decode(b []byte, m Message) error {
	if len(b) > MaxMessage {
		return fmt.Errorf("%w: %T has %d bytes, at most %d", ErrTooLarge, m, len(b), MaxMessage)
	}
	if err := strict(b, m); err != nil {
		return err
	}
	if err := checkVersion(m); err != nil {
		return err
	}
	return m.Check()
}

// DecodeBody reads a turn of up to MaxBody bytes: one that came out of the
// payload bucket, or over HTTP.
func DecodeBody(b []byte, t *Turn) error {
	if len(b) > MaxBody {
		return fmt.Errorf("%w: the body has %d bytes, at most %d", ErrTooLarge, len(b), MaxBody)
	}
	if err := strict(b, t); err != nil {
		return err
	}
	if err := checkVersion(t); err != nil {
		return err
	}
	return t.Check()
}

// strict decodes without accepting unknown fields, trailing data or broken text.
func strict(b []byte, v any) error {
	if !utf8.Valid(b) {
		// encoding/json would put U+FFFD in its place without a word.
		return fmt.Errorf("%w: %T: not valid UTF-8", ErrMessage, v)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %T: %s", ErrMessage, v, strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%w: %T: data after the message", ErrMessage, v)
	}
	return nil
}

func checkVersion(m Message) error {
	if v := m.version(); v != Version {
		return fmt.Errorf("%w: %T has version %d, this build speaks %d", ErrVersion, m, v, Version)
	}
	return nil
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMessage}, args...)...)
}
