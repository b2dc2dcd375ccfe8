package kvtier

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Key names one KV block, or the root of a chain of blocks. It is a SHA-256 over
// everything that decides the block's bytes (Spec, Chain), so equal keys mean
// equal content and unequal tenants never meet. The zero Key names nothing.
type Key [32]byte

// String returns 64 hex digits in lower case.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Short returns the first 12 hex digits, for logs and error texts.
func (k Key) Short() string { return hex.EncodeToString(k[:6]) }

// IsZero reports whether k names nothing.
func (k Key) IsZero() bool { return k == Key{} }

// MarshalText writes 64 hex digits.
func (k Key) MarshalText() ([]byte, error) {
	return hex.AppendEncode(make([]byte, 0, 2*len(k)), k[:]), nil
}

// UnmarshalText reads 64 hex digits of either case. On an error k is unchanged.
func (k *Key) UnmarshalText(text []byte) error {
	if len(text) != 2*len(k) {
		return fmt.Errorf("%w: %d characters, want %d hex digits", ErrBadKey, len(text), 2*len(k))
	}
	var out Key
	if _, err := hex.Decode(out[:], text); err != nil {
		return fmt.Errorf("%w: %w", ErrBadKey, err)
	}
	*k = out
	return nil
}

// ParseKey reads a key from its text form.
func ParseKey(text string) (Key, error) {
	var k Key
	err := k.UnmarshalText([]byte(text))
	return k, err
}

// hash is 64 bits of the key for hash tables. Keys are SHA-256 outputs, so any
// eight bytes are uniform.
func (k *Key) hash() uint64 { return binary.LittleEndian.Uint64(k[:8]) }
