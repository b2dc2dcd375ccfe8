package disk

import (
	"slices"
	"testing"

	"github.com/weir-dev/weir/kvtier"
)

// TestReplacesByBranches: blocks of an ended branch go first though they were used last,
// then those that nobody holds, then those of the branch that waits longer; whether the
// store hears of the branches before it has a pool, or of their blocks, or after.
func TestReplacesByBranches(t *testing.T) {
	const size, each = 16 << 10, 4
	chains := map[kvtier.BranchID][]kvtier.Block{}
	for b := kvtier.BranchID(1); b <= 4; b++ {
		chains[b] = chain(string(rune('a'+b)), each)
	}
	say := func(s *Store) {
		for b, c := range chains {
			if b != 3 { // nobody holds it
				s.Hold(b, c[each-1].Key)
			}
		}
		s.Rank(1, kvtier.ClassWaiting, 9) // goes before branch 2
		s.Rank(2, kvtier.ClassWaiting, 2)
		s.Rank(7, kvtier.ClassWaiting, 1) // of no blocks
	}
	for name, first := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), 1<<20, func(c *Config) { c.SegmentBytes = 320 << 10 })
			if first {
				say(s)
			}
			var use int64
			put := func(b kvtier.Block) (dropped []Dropped) {
				use++
				dropped, err := s.Put(item(testPool, b, size, use))
				if err != nil {
					t.Fatal(err)
				}
				return dropped
			}
			for b := kvtier.BranchID(1); b <= 4; b++ {
				for i := range each {
					put(chains[b][each-1-i]) // memory gives up the last blocks of a chain first
				}
			}
			if !first {
				say(s)
			}
			s.Drop(4, true)
			var want, got []kvtier.Key
			for _, b := range []kvtier.BranchID{4, 3, 1, 2} {
				keys := keysOf(chains[b])
				slices.Reverse(keys)
				want = append(want, keys...)
			}
			s.Hold(5, kvtier.Key{5}) // what comes from here on is needed soonest
			s.Rank(5, kvtier.ClassWaiting, 1)
			parent := kvtier.Block{Index: -1}
			for len(got) < len(want) {
				b := kvtier.Block{Key: kvtier.Key{5, byte(parent.Index + 1)}, Parent: parent.Key, Index: parent.Index + 1}
				s.Hold(5, b.Key)
				for _, d := range put(b) {
					got = append(got, d.Key)
				}
				parent = b
				if parent.Index > 200 {
					t.Fatal("the disk does not fill")
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("went in another order:\n%v\nwant\n%v", names(chains, got), names(chains, want))
			}
			check(t, s)
		})
	}
}

// names says of which branch and at which place keys are.
func names(chains map[kvtier.BranchID][]kvtier.Block, keys []kvtier.Key) (out [][2]int) {
	for _, k := range keys {
		at := [2]int{}
		for b, c := range chains {
			if i := slices.IndexFunc(c, func(x kvtier.Block) bool { return x.Key == k }); i >= 0 {
				at = [2]int{int(b), i}
			}
		}
		out = append(out, at)
	}
	return out
}
