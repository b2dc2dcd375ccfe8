package hostmem

import "hash/crc32"

// streamBytes is from where on a copy goes past the caches where it can: a block
// that large would push out what is in them.
const streamBytes = 256 << 10

// copySumPieces copies src to dst and extends crc over what dst then holds. Each
// piece is summed while it is in the processor's cache, so the sum does not cost a
// second pass through memory.
func copySumPieces(dst, src []byte, crc uint32) uint32 {
	const piece = 32 << 10
	for len(src) > 0 {
		n := copy(dst, src[:min(piece, len(src))])
		crc = crc32.Update(crc, castTable, dst[:n])
		dst, src = dst[n:], src[n:]
	}
	return crc
}
