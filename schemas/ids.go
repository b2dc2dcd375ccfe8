package schemas

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Names that exist without any configuration.
const (
	DefaultTenant = "default"
	DefaultBranch = "main"
	DefaultCell   = "c0"
)

// MaxIDLen is the length limit of an id in bytes. An id is one subject token.
const MaxIDLen = 64

// ValidID reports whether s is an id: [A-Za-z0-9_-]{1,64}. Ids are single
// subject tokens, so nothing that NATS treats specially may occur in them.
func ValidID(s string) bool {
	if len(s) == 0 || len(s) > MaxIDLen {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// CheckID returns an error that names what and the offending value, or nil.
func CheckID(what, s string) error {
	if ValidID(s) {
		return nil
	}
	if len(s) > MaxIDLen {
		return fmt.Errorf("%w: %s has %d characters, at most %d are allowed", ErrID, what, len(s), MaxIDLen)
	}
	return fmt.Errorf("%w: %s is %q, allowed is [A-Za-z0-9_-]{1,%d}", ErrID, what, s, MaxIDLen)
}

// CleanID returns s when it is a valid id, and otherwise a valid id made from
// its hash. The gateway uses it for ids that foreign clients chose.
func CleanID(s string) string {
	if ValidID(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "h-" + hex.EncodeToString(sum[:12])
}

// JobID is the one subject token that stands for a turn: 20 hex digits of
// SHA-256 over tenant, session and turn, separated by a byte that no id holds.
func JobID(tenant, session, turn string) string {
	h := sha256.New()
	for _, s := range [...]string{tenant, session, turn} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	var sum [sha256.Size]byte
	return hex.EncodeToString(h.Sum(sum[:0])[:10])
}
