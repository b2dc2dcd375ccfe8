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
	var b [1024]byte
	n := 0
	for _, t := range r.Tokens {
		if n == len(b) {
			h.Write(b[:])
			n = 0
		}
		binary.LittleEndian.PutUint32(b[n:], uint32(t))
		n += 4
	}
	h.Write(b[:n])
	var sum [sha256.Size]byte
	return hex.EncodeToString(h.Sum(sum[:0])[:16])
}
