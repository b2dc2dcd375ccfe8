package kvtier

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// load is a full table with branches: each has a chain below one of eight system
// prompts; a part of the blocks belongs to branches that have ended.
type load struct {
	b    testing.TB
	s    *Slots
	use  useTimes
	rng  *rand.Rand
	next uint64
	now  int64
	tail []Block // of each branch
}

const loadBranches = 5000

func (l *load) seal(parent *Block) Block {
	l.next++
	l.now++
	blk := Block{Key: sha256.Sum256(binary.LittleEndian.AppendUint64(nil, l.next)), Parent: Key{0xff}}
	if parent != nil {
		blk.Parent, blk.Index = parent.Key, parent.Index+1
	}
	r := l.s.Reserve(1, 1, nil)
	if _, _, err := l.s.Seal(1, r[0], blk, l.now); err != nil {
		l.b.Fatal(err)
	}
	l.use[r[0].Slot] = l.now
	return blk
}

// turn appends a block to a branch, which begins a new context now and then.
func (l *load) turn() {
	i := l.rng.IntN(loadBranches)
	if _, ok := l.s.Find(l.tail[i].Key); !ok || l.rng.IntN(400) == 0 {
		l.tail[i] = l.seal(nil)
	} else {
		l.tail[i] = l.seal(&l.tail[i])
	}
	if l.rng.IntN(8) == 0 {
		l.s.Hold(BranchID(i+1), l.tail[i].Key)
		l.s.Rank(BranchID(i+1), Class(l.rng.IntN(2))+ClassIdle, l.rng.Float64())
	}
}

func newLoad(b testing.TB, n int) *load {
	l := &load{b: b, s: NewSlots(n), use: make(useTimes, n), rng: rand.New(rand.NewPCG(1, 2)), tail: make([]Block, loadBranches)}
	for i := range loadBranches {
		l.tail[i] = l.seal(nil)
	}
	for l.s.Counts().Free > 0 {
		l.turn()
	}
	return l
}

// measured returns a load of n blocks, and how many bytes of memory its table takes per
// block, all included.
func measured(b testing.TB, n int) (*load, float64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := newLoad(b, n)
	runtime.GC()
	runtime.ReadMemStats(&after)
	other := 8*n + cap(l.tail)*int(unsafe.Sizeof(Block{}))
	return l, float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)-int64(other)) / float64(n)
}

// TestBytesPerBlock: a full table with 5,000 branches takes at most 120 bytes per block.
// The number of slots is the worst for the index: one more than a power of two.
func TestBytesPerBlock(t *testing.T) {
	l, bytes := measured(t, 1<<18+1)
	if bytes > 120 {
		t.Errorf("%.1f bytes per block, at most 120 are allowed", bytes)
	}
	if err := l.s.CheckIntegrity(); err != nil {
		t.Error(err)
	}
	t.Logf("%.1f bytes per block", bytes)
}

// BenchmarkVictim measures one decision and eviction in a full table of 5,000
// branches that go on and are ranked anew meanwhile. The bar is a 99th percentile of
// 20 µs.
func BenchmarkVictim(b *testing.B) {
	for _, n := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("%dM", n/1_000_000), func(b *testing.B) {
			l, bytes := measured(b, n)
			took := make([]time.Duration, 0, 1<<20)
			for b.Loop() {
				start := time.Now()
				id, ok := l.s.Victim(l.use, l.now)
				if !ok {
					b.Fatal("nothing may be evicted")
				}
				if _, err := l.s.Evict(id); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				l.turn()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-µs")
			b.ReportMetric(bytes, "B/block")
		})
	}
}
