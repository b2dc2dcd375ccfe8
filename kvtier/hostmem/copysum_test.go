package hostmem

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestCopySum: copies of all lengths around the bounds, at all alignments, are whole,
// have the checksum of their bytes, and touch nothing beside them.
func TestCopySum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	src := make([]byte, 3<<20+100)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	lens := []int{0, 1, 4096, 100_000, streamBytes - 1, streamBytes, streamBytes + 1, streamBytes + 777, 1 << 20, 3 << 20}
	for _, n := range lens {
		for _, from := range []int{0, 1, 8, 63} {
			for _, to := range []int{0, 1, 32, 63} {
				want := src[from : from+n]
				out := bytes.Repeat([]byte{0xAA}, n+200)
				if got := copySum(out[to:to+n], want); got != checksum(want) {
					t.Errorf("%d bytes from %d to %d: sum %08x, want %08x", n, from, to, got, checksum(want))
				}
				if !bytes.Equal(out[to:to+n], want) {
					t.Errorf("%d bytes from %d to %d: another copy", n, from, to)
				}
				if len(bytes.Trim(out[:to], "\xaa")) != 0 || len(bytes.Trim(out[to+n:], "\xaa")) != 0 {
					t.Errorf("%d bytes from %d to %d: bytes beside the copy were written", n, from, to)
				}
			}
		}
	}
}
