package hostmem

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unsafe"
)

// A pool file, all integers in the byte order of the host:
//
//	0        header    4,096 bytes (below)
//	4,096    writers   64 entries of 128 bytes (writers.go)
//	12,288   leases    8 bytes per slot: one bit per client
//	…        slots     one header of 128 bytes each (slot.go)
//	…        index     8 bytes per bucket, four for three slots (index.go)
//	…        data      one stride per slot, page-aligned; large blocks from a huge page on
const (
	layoutVersion = 2
	headerBytes   = 4096
	maxWriters    = 64
	writerBytes   = 128
	slotBytes     = 128
	leaseBytes    = 8
	offLeases     = headerBytes + maxWriters*writerBytes
	pageBytes     = 4096
	dataAlign     = 64
	hugeBytes     = 2 << 20
	hugeFrom      = 1 << 20 // blocks that large begin at a huge page
	maxPoolName   = 256

	offMagic    = 0
	offVersion  = 8
	offOrder    = 12
	offBlock    = 16
	offSlots    = 24
	offFile     = 32
	offArena    = 40
	offPoolLen  = 56
	offPool     = 64
	offCheck    = offPool + maxPoolName // crc32c of everything before it
	offEpoch    = 512                   // daemon starts on this file; written by the daemon
	offPressure = 576                   // reservations that wait; written by the daemon
)

var (
	magic     = [8]byte{'W', 'E', 'I', 'R', 'K', 'V', 0, 1}
	castTable = crc32.MakeTable(crc32.Castagnoli)
)

const byteOrderMark = 0x01020304

// layout is where things are in a pool file. It follows from block size and slot
// count alone, so that it cannot contradict the header.
type layout struct {
	block   int64 // bytes of one block
	stride  int64 // bytes from one block to the next
	slots   int64
	buckets int64
	headers int64 // offset of the slot headers
	index   int64 // offset of the index
	data    int64 // offset of the data
	file    int64 // bytes in all
}

// newLayout places n blocks of block bytes.
func newLayout(block, n int64) layout {
	l := layout{block: block, slots: n, buckets: max(8, n+n/3+1), stride: alignUp(block, dataAlign)}
	if block >= 16*pageBytes {
		l.stride = alignUp(block, pageBytes)
	}
	l.headers = alignUp(offLeases+n*leaseBytes, slotBytes)
	l.index = l.headers + n*slotBytes
	l.data = alignUp(l.index+8*l.buckets, pageBytes)
	if block >= hugeFrom {
		l.data = alignUp(l.data, hugeBytes)
	}
	l.file = alignUp(l.data+n*l.stride, pageBytes)
	return l
}

// fitLayout places as many blocks as fit into bytes; zero slots if none does.
func fitLayout(block, bytes int64) layout {
	lo, hi := int64(0), min(bytes/max(block, 1), maxPoolSlots)
	for lo < hi { // the largest n whose file fits
		mid := (lo + hi + 1) / 2
		if newLayout(block, mid).file <= bytes {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return newLayout(block, lo)
}

const maxPoolSlots = 1 << 30

func alignUp(n, to int64) int64 { return (n + to - 1) / to * to }

// writeHeader fills the header of a file that nobody else has mapped.
func writeHeader(mem []byte, l layout, pool string, arena [16]byte) {
	copy(mem[offMagic:], magic[:])
	binary.NativeEndian.PutUint32(mem[offVersion:], layoutVersion)
	binary.NativeEndian.PutUint32(mem[offOrder:], byteOrderMark)
	binary.NativeEndian.PutUint64(mem[offBlock:], uint64(l.block))
	binary.NativeEndian.PutUint64(mem[offSlots:], uint64(l.slots))
	binary.NativeEndian.PutUint64(mem[offFile:], uint64(l.file))
	copy(mem[offArena:], arena[:])
	binary.NativeEndian.PutUint32(mem[offPoolLen:], uint32(len(pool)))
	clear(mem[offPool : offPool+maxPoolName])
	copy(mem[offPool:], pool)
	binary.NativeEndian.PutUint32(mem[offCheck:], crc32.Checksum(mem[:offCheck], castTable))
}

// readHeader checks a header against the file's size and returns what it says.
func readHeader(mem []byte, size int64, path string) (l layout, pool string, arena [16]byte, err error) {
	bad := func(format string, args ...any) (layout, string, [16]byte, error) {
		return layout{}, "", [16]byte{}, fmt.Errorf("%w: %s: %s; delete it or choose another folder",
			ErrLayout, path, fmt.Sprintf(format, args...))
	}
	if len(mem) < headerBytes {
		return bad("%d bytes are too short for a header", len(mem))
	}
	if [8]byte(mem[:8]) != magic {
		return bad("no weir KV pool (magic %x)", mem[:8])
	}
	if v := binary.NativeEndian.Uint32(mem[offVersion:]); v != layoutVersion {
		return bad("layout version %d, this program has %d", v, layoutVersion)
	}
	if binary.NativeEndian.Uint32(mem[offOrder:]) != byteOrderMark {
		return bad("written by a host of another byte order")
	}
	if got, want := crc32.Checksum(mem[:offCheck], castTable), binary.NativeEndian.Uint32(mem[offCheck:]); got != want {
		return bad("header checksum %08x, want %08x", got, want)
	}
	block := int64(binary.NativeEndian.Uint64(mem[offBlock:]))
	slots := int64(binary.NativeEndian.Uint64(mem[offSlots:]))
	n := binary.NativeEndian.Uint32(mem[offPoolLen:])
	if block <= 0 || slots <= 0 || slots > maxPoolSlots || n > maxPoolName || block > size {
		return bad("%d slots of %d bytes, pool name of %d bytes", slots, block, n)
	}
	l = newLayout(block, slots)
	if l.file != int64(binary.NativeEndian.Uint64(mem[offFile:])) || l.file != size {
		return bad("%d bytes, want %d for %d slots of %d bytes", size, l.file, slots, block)
	}
	return l, string(mem[offPool : offPool+int64(n)]), [16]byte(mem[offArena : offArena+16]), nil
}

// checkPool checks what a pool is declared with.
func checkPool(pool string, block int64) error {
	if pool == "" || len(pool) > maxPoolName {
		return fmt.Errorf("%w: pool name of %d bytes, want 1 to %d", ErrName, len(pool), maxPoolName)
	}
	if block <= 0 || block > 1<<40 {
		return fmt.Errorf("%w: pool %q with blocks of %d bytes", ErrName, pool, block)
	}
	return nil
}

// The atomics of sync/atomic need their natural alignment, which every offset has.
func ptr[T any](mem []byte, off int64) *T { return (*T)(unsafe.Pointer(&mem[off])) }
