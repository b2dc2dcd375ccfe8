package hostmem

import (
	"hash/crc32"
	"sync"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// laneBytes is the length of a lane: long enough that the reads of three of them
// keep memory busy, and no multiple of a page, so that their addresses do not look
// alike to the processor.
const laneBytes = 16<<10 + 64

// copyLanes copies three lanes of lane bytes each, a multiple of 64, which lie one
// behind the other, and extends their raw sums (not inverted). They are copied side
// by side: the sum of one takes three cycles per word, and a single stream of reads
// does not use all of memory's speed. Stores go past the caches, as those of a
// large memmove do, so the lines of dst are not read first; dst must be aligned to
// 32 bytes. The stores are done when it returns. Sum and copy load each line
// separately: a slot that is written meanwhile is told by its generation.
//
//go:noescape
func copyLanes(dst, src *byte, lane uintptr, crcs *[3]uint32)

// hasLanes: copyLanes uses SSE 4.2 and AVX.
var hasLanes = cpu.X86.HasSSE42 && cpu.X86.HasAVX

// laneShift says what a raw sum becomes when laneBytes zeros follow it, for each
// value of each of its bytes. Sums are linear, so the four are added.
var laneShift = sync.OnceValue(func() *[4][256]uint32 {
	zeros := make([]byte, laneBytes)
	var t [4][256]uint32
	for i := range t {
		for v := range t[i] {
			t[i][v] = ^crc32.Update(^(uint32(v) << (8 * i)), castTable, zeros)
		}
	}
	return &t
})

func shiftLane(t *[4][256]uint32, crc uint32) uint32 {
	return t[0][byte(crc)] ^ t[1][byte(crc>>8)] ^ t[2][byte(crc>>16)] ^ t[3][crc>>24]
}

// copySum copies src to dst, both of one length, and returns the checksum of what
// it copied.
func copySum(dst, src []byte) (crc uint32) {
	if len(src) < streamBytes || !hasLanes {
		return copySumPieces(dst, src, 0)
	}
	head := int(-uintptr(unsafe.Pointer(&dst[0])) % 64)
	crc = ^copySumPieces(dst[:head], src[:head], 0)
	dst, src = dst[head:], src[head:]
	t := laneShift()
	for len(src) >= 3*laneBytes {
		crcs := [3]uint32{crc, 0, 0}
		copyLanes(&dst[0], &src[0], laneBytes, &crcs)
		crc = shiftLane(t, shiftLane(t, crcs[0])^crcs[1]) ^ crcs[2]
		dst, src = dst[3*laneBytes:], src[3*laneBytes:]
	}
	return copySumPieces(dst, src, ^crc)
}
