package disk

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"

	"github.com/weir-dev/weir/kvtier"
)

// A segment, all integers little endian:
//
//	0      header        4,096 bytes (below)
//	4,096  slot headers  128 bytes each
//	…      data          one stride per slot, from a page border on
const (
	layoutVersion = 1
	headerBytes   = 4096
	slotBytes     = 128
	pageBytes     = 4096
	dataAlign     = 64
	maxPoolName   = 256

	offMagic   = 0
	offVersion = 8
	offNumber  = 12
	offBlock   = 16
	offSlots   = 24
	offPoolLen = 32
	offPool    = 36
	offCheck   = offPool + maxPoolName // crc32c of everything before it
)

var (
	magic     = [8]byte{'W', 'E', 'I', 'R', 'K', 'D', 0, 1}
	castTable = crc32.MakeTable(crc32.Castagnoli)
)

// layout is where things are in a segment.
type layout struct {
	block  int64 // bytes of one block
	stride int64
	slots  int64
	data   int64 // offset of the data
	file   int64 // bytes in all
}

func newLayout(block, slots int64) layout {
	l := layout{block: block, slots: slots, stride: alignUp(block, dataAlign)}
	if block >= 16*pageBytes {
		l.stride = alignUp(block, pageBytes)
	}
	l.data = alignUp(headerBytes+slots*slotBytes, pageBytes)
	l.file = alignUp(l.data+slots*l.stride, pageBytes)
	return l
}

// fitLayout places as many blocks as fit into a segment of about bytes, at least one.
func fitLayout(block, bytes int64) layout {
	n := max(1, (bytes-headerBytes)/(alignUp(block, dataAlign)+slotBytes))
	for n > 1 && newLayout(block, n).file > bytes {
		n--
	}
	return newLayout(block, n)
}

func alignUp(n, to int64) int64 { return (n + to - 1) / to * to }

// poolName names a pool's files.
func poolName(pool string, block int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", pool, block))
	return hex.EncodeToString(sum[:8])
}

func encodeHeader(l layout, pool string, number int) []byte {
	b := make([]byte, headerBytes)
	copy(b[offMagic:], magic[:])
	binary.LittleEndian.PutUint32(b[offVersion:], layoutVersion)
	binary.LittleEndian.PutUint32(b[offNumber:], uint32(number))
	binary.LittleEndian.PutUint64(b[offBlock:], uint64(l.block))
	binary.LittleEndian.PutUint64(b[offSlots:], uint64(l.slots))
	binary.LittleEndian.PutUint32(b[offPoolLen:], uint32(len(pool)))
	copy(b[offPool:], pool)
	binary.LittleEndian.PutUint32(b[offCheck:], crc32.Checksum(b[:offCheck], castTable))
	return b
}

// decodeHeader reads a segment's header; size is that of the file.
func decodeHeader(b []byte, size int64) (l layout, pool string, number int, err error) {
	bad := func(format string, args ...any) (layout, string, int, error) {
		return layout{}, "", 0, fmt.Errorf("%w: %s", ErrSegment, fmt.Sprintf(format, args...))
	}
	switch {
	case len(b) < headerBytes:
		return bad("%d bytes are too short for a header", len(b))
	case [8]byte(b[:8]) != magic:
		return bad("no weir KV segment (magic %x)", b[:8])
	case binary.LittleEndian.Uint32(b[offVersion:]) != layoutVersion:
		return bad("layout version %d, this program has %d", binary.LittleEndian.Uint32(b[offVersion:]), layoutVersion)
	case crc32.Checksum(b[:offCheck], castTable) != binary.LittleEndian.Uint32(b[offCheck:]):
		return bad("wrong header checksum")
	}
	block, slots := int64(binary.LittleEndian.Uint64(b[offBlock:])), int64(binary.LittleEndian.Uint64(b[offSlots:]))
	n, seg := binary.LittleEndian.Uint32(b[offPoolLen:]), binary.LittleEndian.Uint32(b[offNumber:])
	if block <= 0 || block > size || slots <= 0 || slots > maxBlocks || n > maxPoolName || seg >= maxBlocks {
		return bad("segment %d: %d slots of %d bytes, pool name of %d bytes", seg, slots, block, n)
	}
	if l = newLayout(block, slots); l.file != size {
		return bad("%d bytes, want %d for %d slots of %d bytes", size, l.file, slots, block)
	}
	return l, string(b[offPool : offPool+n]), int(seg), nil
}

// A slot header:
//
//	  0  state    1 sealed, else free
//	  4  origin   prefill or decode
//	  8  gen      generation, grows with each use of the slot
//	 16  key      32 bytes
//	 48  parent   32 bytes
//	 80  index    position in the chain
//	 84  crc      crc32c of the data
//	 88  use      last use when it was written, Unix nanoseconds
//	124  check    crc32c of everything before it
const (
	stFree   = 0
	stSealed = 1
)

type slotHeader struct {
	state uint32
	gen   uint64
	block kvtier.Block
	crc   uint32
	use   int64
}

func (h *slotHeader) encode() []byte {
	b := make([]byte, slotBytes)
	binary.LittleEndian.PutUint32(b[0:], h.state)
	binary.LittleEndian.PutUint32(b[4:], uint32(h.block.Origin))
	binary.LittleEndian.PutUint64(b[8:], h.gen)
	copy(b[16:], h.block.Key[:])
	copy(b[48:], h.block.Parent[:])
	binary.LittleEndian.PutUint32(b[80:], uint32(h.block.Index))
	binary.LittleEndian.PutUint32(b[84:], h.crc)
	binary.LittleEndian.PutUint64(b[88:], uint64(h.use))
	binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castTable))
	return b
}

// decodeSlot reads a slot header. A slot that was never used is all zeros. ok is false
// for one whose checksum is wrong: a torn write, or a damaged disk.
func decodeSlot(b []byte) (h slotHeader, ok bool) {
	b = b[:slotBytes]
	sum := binary.LittleEndian.Uint32(b[124:])
	if sum == 0 && allZero(b) {
		return slotHeader{}, true
	}
	if crc32.Checksum(b[:124], castTable) != sum {
		return slotHeader{}, false
	}
	h.state = binary.LittleEndian.Uint32(b[0:])
	h.gen = binary.LittleEndian.Uint64(b[8:])
	h.block = kvtier.Block{
		Key: kvtier.Key(b[16:48]), Parent: kvtier.Key(b[48:80]),
		Index: int(binary.LittleEndian.Uint32(b[80:])), Origin: kvtier.Origin(binary.LittleEndian.Uint32(b[4:])),
	}
	h.crc, h.use = binary.LittleEndian.Uint32(b[84:]), int64(binary.LittleEndian.Uint64(b[88:]))
	return h, h.state == stFree || h.state == stSealed
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// Checksum is crc32c (Castagnoli), the sum that a block is stored with.
func Checksum(data []byte) uint32 { return crc32.Checksum(data, castTable) }
