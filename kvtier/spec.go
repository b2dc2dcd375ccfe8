package kvtier

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// Spec is everything besides tokens and media that decides the bytes of a KV
// block. Two turns share blocks only if all fields are equal.
type Spec struct {
	TenantSalt    string // secret or name of the tenant: no two tenants ever share a block
	ModelDigest   string // digest of the model's weights, not its name
	Adapter       string // digest of the LoRA adapter and its scale; empty for none
	Template      string // chat template digest and options, canonical text
	Engine        string // engine kind, e.g. "llama", "go"
	EngineVersion string // library version and its state format
	Numerics      string // KV type, v_trans, RoPE settings, prefill step: whatever decides a KV byte
	Tokenizer     string // implementation and vocabulary
	FormatVersion uint32 // version of the block layout that the executor exports
}

// Tags of the fields in the hashed text. A tag is never given to another field;
// a field that is added gets the next one.
const (
	tagTenantSalt    = 0x01
	tagModelDigest   = 0x02
	tagAdapter       = 0x03
	tagTemplate      = 0x04
	tagEngine        = 0x05
	tagEngineVersion = 0x06
	tagNumerics      = 0x07
	tagTokenizer     = 0x08
	tagFormatVersion = 0x09

	tagParent = 0x20
	tagIndex  = 0x21
	tagTokens = 0x22
	tagMedia  = 0x23
)

const rootDomain = "weir kv root v1\x00"

// Validate names every field that must not be empty and is. Adapter and Template
// may be empty: a model without LoRA, a pool that takes raw tokens only.
func (s Spec) Validate() error {
	var missing []string
	for _, f := range []struct{ name, value string }{
		{"TenantSalt", s.TenantSalt},
		{"ModelDigest", s.ModelDigest},
		{"Engine", s.Engine},
		{"EngineVersion", s.EngineVersion},
		{"Numerics", s.Numerics},
		{"Tokenizer", s.Tokenizer},
	} {
		if f.value == "" {
			missing = append(missing, f.name)
		}
	}
	if s.FormatVersion == 0 {
		missing = append(missing, "FormatVersion")
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s not set", ErrBadSpec, strings.Join(missing, ", "))
	}
	return nil
}

// Root is the parent of every chain of blocks under this spec. It is SHA-256 of
//
//	"weir kv root v1\x00"
//	for each field in the order of its tag:
//	  tag     1 byte
//	  length  4 bytes, big endian
//	  value   length bytes; FormatVersion as 4 bytes, big endian
//
// Tags and lengths make the text unambiguous: bytes cannot move from one field
// to the next without changing the hash.
func (s Spec) Root() Key {
	b := make([]byte, 0, 512)
	b = append(b, rootDomain...)
	b = appendField(b, tagTenantSalt, s.TenantSalt)
	b = appendField(b, tagModelDigest, s.ModelDigest)
	b = appendField(b, tagAdapter, s.Adapter)
	b = appendField(b, tagTemplate, s.Template)
	b = appendField(b, tagEngine, s.Engine)
	b = appendField(b, tagEngineVersion, s.EngineVersion)
	b = appendField(b, tagNumerics, s.Numerics)
	b = appendField(b, tagTokenizer, s.Tokenizer)
	b = appendHead(b, tagFormatVersion, 4)
	b = binary.BigEndian.AppendUint32(b, s.FormatVersion)
	return sha256.Sum256(b)
}

func appendHead(b []byte, tag byte, length int) []byte {
	return binary.BigEndian.AppendUint32(append(b, tag), uint32(length))
}

func appendField(b []byte, tag byte, value string) []byte {
	return append(appendHead(b, tag, len(value)), value...)
}
