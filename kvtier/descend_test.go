package kvtier

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestBelow: what is found below a key is what following the parents of all blocks
// finds, parents first.
func TestBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 24
		s := NewSlots(slots)
		key := func(i int) Key { return Key{1, byte(i)} }
		parents := make([]int, slots) // of block i, a block with a smaller number, or -1
		index := make([]int, slots)
		for i := range slots {
			parents[i] = rapid.IntRange(-1, i-1).Draw(t, "parent")
			b := Block{Key: key(i), Parent: Key{9}}
			if p := parents[i]; p >= 0 {
				index[i] = index[p] + 1
				b.Parent, b.Index = key(p), index[i]
			}
			if _, _, err := s.Seal(0, s.Reserve(0, 1, nil)[0], b, int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		gone := map[int]bool{}
		for range rapid.IntRange(0, 8).Draw(t, "holes") {
			i := rapid.IntRange(0, slots-1).Draw(t, "hole")
			if id, ok := s.Find(key(i)); ok {
				gone[i] = true
				if _, err := s.Remove(id); err != nil {
					t.Fatal(err)
				}
			}
		}
		for top := range slots {
			below := map[int]bool{top: true}
			var want []Key
			for i := range slots {
				// A chain ends where a block of it is missing: its key is not known below.
				if p := parents[i]; p >= 0 && below[p] && (p == top || !gone[p]) && !gone[i] {
					below[i] = true
					want = append(want, key(i))
				}
			}
			var got []Key
			for _, id := range s.Below(key(top), nil) {
				b, _ := s.Get(id)
				if i := b.Parent; i != key(top) && !slices.Contains(got, i) {
					t.Fatalf("block %s comes before its parent", b.Key.Short())
				}
				got = append(got, b.Key)
			}
			byKey := func(a, b Key) int { return slices.Compare(a[:], b[:]) }
			slices.SortFunc(got, byKey)
			slices.SortFunc(want, byKey)
			if !slices.Equal(got, want) {
				t.Fatalf("below %d: %d blocks, want %d", top, len(got), len(want))
			}
		}
	})
}
