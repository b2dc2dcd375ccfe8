package hostmem

import (
	"math/rand/v2"
	"testing"

	"github.com/weir-dev/weir/kvtier"
)

// TestRepairOfADamagedIndex: whatever stands in the index, after repair it finds
// exactly what is sealed.
func TestRepairOfADamagedIndex(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		const slots = 63
		a := memArena(slots)
		var keys []kvtier.Key
		for id := range uint32(slots) {
			k := indexKey(int(seed)*slots + int(id))
			if rng.IntN(8) == 0 {
				k = kvtier.Key{}
			} else {
				a.testSeal(id, 1, k)
				a.insert(&k, id)
			}
			keys = append(keys, k)
		}
		for range rng.IntN(600) { // up to a table without an empty bucket
			b := a.bucket(rng.Uint64N(uint64(a.buckets)))
			b.Store(b.Load() ^ 1<<rng.IntN(64))
		}
		a.repair()
		entries := 0
		for i := range uint64(a.buckets) {
			if a.bucket(i).Load() != 0 {
				entries++
			}
		}
		for id, k := range keys {
			if k.IsZero() {
				continue
			}
			entries--
			if found, _, ok := a.find(&k); !ok || found != uint32(id) {
				t.Fatalf("seed %d: slot %d is found at %d, %v", seed, id, found, ok)
			}
		}
		if entries != 0 {
			t.Fatalf("seed %d: %d entries too many", seed, entries)
		}
	}
}
