package kvtier

import (
	"math/rand/v2"
	"testing"
)

// TestRestoreInAnyOrder: a table that is rebuilt from slots at random is whole, also
// when some parents are missing, and keeps no memory for those that came late.
func TestRestoreInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		const n, chain = 400, 20
		slots := rng.Perm(n)
		saved := make([]Saved, n)
		missing := 0
		for i := range n {
			b := Block{Key: Key{1, byte(i), byte(i >> 8)}, Parent: Key{2, byte(i / chain)}, Index: i % chain}
			if b.Index > 0 {
				b.Parent = Key{1, byte(i - 1), byte((i - 1) >> 8)}
			}
			if rng.IntN(10) == 0 {
				missing++
				continue
			}
			saved[slots[i]] = Saved{State: SlotSealed, Gen: 1, Block: b, Use: int64(i)}
		}
		s, refused := Restore(n, func(id SlotID) Saved { return saved[id] })
		if len(refused) != 0 || s.Counts().Sealed != n-missing {
			t.Fatalf("%d refused, %+v", len(refused), s.Counts())
		}
		if err := s.CheckIntegrity(); err != nil {
			t.Fatal(err)
		}
		if len(s.parents.list) > n/chain+missing || len(s.parents.free) != 0 {
			t.Fatalf("%d absent parents are kept, %d free", len(s.parents.list), len(s.parents.free))
		}
		for s.Counts().Sealed > 0 {
			id, ok := s.Victim(idleReaders{}, 1<<40)
			if _, err := s.Evict(id); !ok || err != nil {
				t.Fatal(err)
			}
		}
		if err := s.CheckIntegrity(); err != nil {
			t.Fatal(err)
		}
	}
}

type idleReaders struct{}

func (idleReaders) Leased(SlotID) bool   { return false }
func (idleReaders) LastUse(SlotID) int64 { return 0 }
