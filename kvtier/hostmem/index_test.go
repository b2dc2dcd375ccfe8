package hostmem

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/kvtier"
)

// memArena is an arena in ordinary memory.
func memArena(slots int64) *arena {
	l := newLayout(64, slots)
	words := make([]uint64, l.file/8+1)
	a := &arena{layout: l, mem: ptrBytes(words)}
	writeHeader(a.mem, l, "mem", [16]byte{})
	return a
}

func indexKey(i int) kvtier.Key {
	return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i)))
}

func ptrBytes(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
}

func (a *arena) testSeal(id uint32, gen uint64, k kvtier.Key) {
	s := a.slot(id)
	s.describe(kvtier.Block{Key: k}, gen, 0, 0)
	s.word().Store(word(gen, stSealed))
}

func TestIndexAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 6 // few buckets: runs wrap around and collide
		a := memArena(slots)
		at := map[kvtier.Key]uint32{}
		used := map[uint32]kvtier.Key{}
		gen := uint64(1)
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				k := indexKey(rapid.IntRange(0, 30).Draw(t, "key"))
				for id := range uint32(slots) {
					if _, taken := used[id]; taken {
						continue
					}
					gen++
					a.testSeal(id, gen, k)
					found, ok := a.insert(&k, id)
					if old, dup := at[k]; dup {
						if !ok || found != old {
							t.Fatalf("second insert finds %d %v, want %d", found, ok, old)
						}
						a.slot(id).word().Store(word(gen, stFree))
						return
					}
					if !ok || found != id {
						t.Fatalf("insert finds %d %v, want %d", found, ok, id)
					}
					at[k], used[id] = id, k
					return
				}
			},
			"remove": func(t *rapid.T) {
				k := indexKey(rapid.IntRange(0, 30).Draw(t, "key"))
				id, ok := at[k]
				if a.remove(&k, id) != ok {
					t.Fatalf("remove of slot %d: want %v", id, ok)
				}
				if ok {
					a.slot(id).word().Store(word(gen, stFree))
					delete(at, k)
					delete(used, id)
				}
			},
			"damage and repair": func(t *rapid.T) {
				for range rapid.IntRange(0, 4).Draw(t, "n") {
					v := rapid.SampledFrom([]uint64{0, 1, 5, 1<<32 | 2, 1<<63 | 900}).Draw(t, "v")
					a.bucket(uint64(rapid.IntRange(0, int(a.buckets)-1).Draw(t, "bucket"))).Store(v)
				}
				a.repair()
			},
			"": func(t *rapid.T) {
				for i := range 31 {
					k := indexKey(i)
					id, _, ok := a.find(&k)
					want, has := at[k]
					if ok != has || ok && id != want {
						t.Fatalf("key %d found in slot %d %v, want %d %v", i, id, ok, want, has)
					}
				}
			},
		})
	})
}

// Inserts race with removals. Whatever the race leaves behind, repair brings back
// an index that finds exactly what is sealed.
func TestIndexUnderConcurrentInsertAndRemove(t *testing.T) {
	const slots, rounds = 64, 300
	a := memArena(slots)
	gone := make(chan uint32, slots)
	free := make(chan uint32, slots)
	for id := range uint32(slots) {
		free <- id
	}
	var inserters, remover sync.WaitGroup
	remover.Go(func() {
		for id := range gone {
			k := a.slot(id).loadKey(32)
			a.slot(id).word().Store(word(1, stEvicting))
			a.remove(&k, id)
			a.slot(id).word().Store(word(1, stFree))
			free <- id
		}
	})
	for w := range 4 {
		inserters.Go(func() {
			for i := range rounds {
				id := <-free
				k := indexKey(w*rounds + i)
				a.testSeal(id, 1, k)
				a.insert(&k, id)
				gone <- id
			}
		})
	}
	inserters.Wait()
	close(gone)
	remover.Wait()
	a.repair()
	for i := range uint64(a.buckets) {
		if e := a.bucket(i).Load(); e != 0 {
			t.Fatalf("bucket %d holds %x though nothing is sealed", i, e)
		}
	}
}

func TestLayoutFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.Int64Range(1, 1<<22).Draw(t, "block")
		size := rapid.Int64Range(minBytes, 1<<30).Draw(t, "bytes")
		l := fitLayout(block, size)
		if l.slots == 0 {
			if newLayout(block, 1).file <= size {
				t.Fatal("one slot would fit")
			}
			return
		}
		if l.file > size || newLayout(block, l.slots+1).file <= size {
			t.Fatalf("%d slots take %d of %d bytes", l.slots, l.file, size)
		}
		if l.stride < block || l.stride%dataAlign != 0 || l.data%pageBytes != 0 || l.data < l.index+8*l.buckets ||
			3*l.buckets < 4*l.slots || l.data+l.slots*l.stride > l.file {
			t.Fatalf("%+v", l)
		}
	})
}
