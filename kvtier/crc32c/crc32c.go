// Package crc32c is the checksum of KV blocks, CRC-32 with Castagnoli's polynomial, as
// fast as memory where the processor can multiply without carries in wide registers.
// It gives the values of hash/crc32.
package crc32c

import (
	"encoding/binary"
	"hash/crc32"
)

var table = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the checksum of data.
func Checksum(data []byte) uint32 { return Update(0, data) }

// Update extends the checksum of what came before data.
func Update(crc uint32, data []byte) uint32 {
	if !wide || len(data) < 4*step {
		return crc32.Update(crc, table, data)
	}
	// The first step bytes, and the state of the checksum in front of them, are folded
	// over the rest: what comes out has the same remainder as all of it.
	state := ^crc
	var acc [step]byte
	copy(acc[:], data)
	binary.LittleEndian.PutUint32(acc[:], binary.LittleEndian.Uint32(acc[:])^state)
	data = data[step:]
	fold(&acc, &data[0], uintptr(len(data)/step), &constants)
	data = data[len(data)/step*step:]
	return crc32.Update(crc32.Update(^uint32(0), table, acc[:]), table, data)
}

// step is how many bytes are folded at once.
const step = 256

// constants are what a lane of 128 bits is multiplied with to move it step bytes on:
// powers of x modulo the polynomial, for its first and its second half. A product of
// reflected numbers is one bit short, hence the 1.
var constants = [2]uint64{power(8*step + 64 - 1), power(8*step - 1)}

// power is x^n modulo the polynomial, reflected into 64 bits.
func power(n int) uint64 {
	v := uint32(1) << 31
	for range n {
		carry := v & 1
		if v >>= 1; carry != 0 {
			v ^= crc32.Castagnoli
		}
	}
	return uint64(v) << 32
}
