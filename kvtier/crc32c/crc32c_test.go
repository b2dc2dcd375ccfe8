package crc32c

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func random(n int) []byte {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// Every length up to some steps, and the known value of the standard's test string.
func TestLengths(t *testing.T) {
	if got := Checksum([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("the check value is %08x", got)
	}
	data := random(9 * step)
	for n := range len(data) {
		if got, want := Checksum(data[:n]), crc32.Checksum(data[:n], table); got != want {
			t.Fatalf("%d bytes: %08x, want %08x", n, got, want)
		}
	}
}

// Whatever the data, its place in memory, and the pieces in which it comes.
func TestUpdate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := random(rapid.IntRange(0, 1<<16).Draw(t, "length"))
		data = data[rapid.IntRange(0, min(64, len(data))).Draw(t, "offset"):]
		crc := rapid.Uint32().Draw(t, "before")
		if rapid.Bool().Draw(t, "zeros") {
			clear(data)
		}
		want := crc32.Update(crc, table, data)
		for rest := data; ; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "piece")
			crc, rest = Update(crc, rest[:n]), rest[n:]
			if len(rest) < 1000 {
				crc = Update(crc, rest)
				break
			}
		}
		if crc != want {
			t.Fatalf("%08x, want %08x", crc, want)
		}
	})
}

func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int{4 << 10, 256 << 10, 2 << 20} {
		data := random(n)
		b.Run(fmt.Sprint(n>>10, "KiB"), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				Checksum(data)
			}
		})
		b.Run(fmt.Sprint("std/", n>>10, "KiB"), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				crc32.Checksum(data, table)
			}
		})
	}
}
