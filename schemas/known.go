package schemas

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

func knownDigest(r *Result) string {
	h := sha256.New()
	h.Write([]byte(r.Job))
	h.Write([]byte{0})
	h.Write([]byte(r.Status))
	h.Write([]byte{0})
	var b [4]byte
	for _, t := range r.Tokens {
		binary.LittleEndian.PutUint32(b[:], uint32(t))
		h.Write(b[:])
	}
	var sum [sha256.Size]byte
	return hex.EncodeToString(h.Sum(sum[:0])[:16])
}
