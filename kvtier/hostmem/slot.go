package hostmem

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/crc32c"
)

// The states in a slot's word, beside the generation.
const (
	stFree     = 0
	stReserved = 1
	stSealed   = 2
	stEvicting = 3 // the daemon is looking whether the block is leased

	stateBits = 8
)

// slot is one slot header. A lookup touches its first cache line only.
//
//	  0  word     generation << 8 | state        reserve, evict: daemon; seal: writer
//	  8  sum      crc32c of what describes the block and of its generation; writer, before sealing
//	 16  use      last use, unix nanoseconds     readers
//	 24  crc      crc32c of the data             writer, before sealing
//	 28  index    position in the chain          writer, before sealing
//	 32  key      32 bytes                       writer, before sealing
//	 64  parent   32 bytes                       writer, before sealing
//	 96  writer   writer number + 1              daemon
//	100  origin   prefill or decode              writer, before sealing
//	104  known    1 once the daemon has it in its table
type slot struct {
	mem []byte
	off int64
}

func (s slot) word() *atomic.Uint64   { return ptr[atomic.Uint64](s.mem, s.off) }
func (s slot) sum() *atomic.Uint32    { return ptr[atomic.Uint32](s.mem, s.off+8) }
func (s slot) use() *atomic.Int64     { return ptr[atomic.Int64](s.mem, s.off+16) }
func (s slot) crc() *atomic.Uint32    { return ptr[atomic.Uint32](s.mem, s.off+24) }
func (s slot) index() *atomic.Uint32  { return ptr[atomic.Uint32](s.mem, s.off+28) }
func (s slot) writer() *atomic.Uint32 { return ptr[atomic.Uint32](s.mem, s.off+96) }
func (s slot) origin() *atomic.Uint32 { return ptr[atomic.Uint32](s.mem, s.off+100) }
func (s slot) known() *atomic.Uint32  { return ptr[atomic.Uint32](s.mem, s.off+104) }

func word(gen uint64, state uint64) uint64 { return gen<<stateBits | state }
func wordGen(w uint64) uint64              { return w >> stateBits }
func wordState(w uint64) uint64            { return w & (1<<stateBits - 1) }

// keyWords is a key as the four words in which it is read and written: a reader
// may meet a writer, and finds out by the state word.
type keyWords [4]uint64

func toWords(k *kvtier.Key) (w keyWords) {
	for i := range w {
		w[i] = binary.NativeEndian.Uint64(k[8*i:])
	}
	return w
}

func (w keyWords) key() (k kvtier.Key) {
	for i := range w {
		binary.NativeEndian.PutUint64(k[8*i:], w[i])
	}
	return k
}

func (s slot) keyIs(w *keyWords) bool {
	return ptr[atomic.Uint64](s.mem, s.off+32).Load() == w[0] &&
		ptr[atomic.Uint64](s.mem, s.off+40).Load() == w[1] &&
		ptr[atomic.Uint64](s.mem, s.off+48).Load() == w[2] &&
		ptr[atomic.Uint64](s.mem, s.off+56).Load() == w[3]
}

func (s slot) loadKey(off int64) kvtier.Key {
	var w keyWords
	for i := range w {
		w[i] = ptr[atomic.Uint64](s.mem, s.off+off+int64(8*i)).Load()
	}
	return w.key()
}

func (s slot) storeKey(off int64, k *kvtier.Key) {
	for i, v := range toWords(k) {
		ptr[atomic.Uint64](s.mem, s.off+off+int64(8*i)).Store(v)
	}
}

// describe writes what seal publishes; the slot must be reserved by the caller in
// generation gen.
func (s slot) describe(b kvtier.Block, gen uint64, crc uint32, now int64) {
	s.storeKey(32, &b.Key)
	s.storeKey(64, &b.Parent)
	s.index().Store(uint32(b.Index))
	s.origin().Store(uint32(b.Origin))
	s.crc().Store(crc)
	s.sum().Store(describeSum(&b, gen, crc))
	s.use().Store(now)
}

// describeSum is the checksum of a header, by which a damaged one is told.
func describeSum(b *kvtier.Block, gen uint64, crc uint32) uint32 {
	var text [88]byte
	copy(text[:], b.Key[:])
	copy(text[32:], b.Parent[:])
	binary.NativeEndian.PutUint64(text[64:], gen)
	binary.NativeEndian.PutUint32(text[72:], crc)
	binary.NativeEndian.PutUint64(text[76:], uint64(b.Index))
	binary.NativeEndian.PutUint32(text[84:], uint32(b.Origin))
	return checksum(text[:])
}

// block reads the header of a slot whose word is w; false if it changed meanwhile or
// is damaged.
func (s slot) block(w uint64) (kvtier.Block, bool) {
	b := kvtier.Block{
		Key: s.loadKey(32), Parent: s.loadKey(64),
		Index: int(s.index().Load()), Origin: kvtier.Origin(s.origin().Load()),
	}
	sum := describeSum(&b, wordGen(w), s.crc().Load())
	return b, s.sum().Load() == sum && s.word().Load() == w
}

// checksum is crc32c (Castagnoli), which processors compute at memory speed.
func checksum(data []byte) uint32 { return crc32c.Checksum(data) }
