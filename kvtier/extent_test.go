package kvtier

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestExtentsEndWhereTheTreeForks(t *testing.T) {
	k := func(b byte) Key { return Key{b} }
	a0, a1, a2 := Block{Key: k(1), Parent: k(99)}, Block{Key: k(2), Parent: k(1), Index: 1}, Block{Key: k(3), Parent: k(2), Index: 2}
	b3, b4 := Block{Key: k(4), Parent: k(3), Index: 3}, Block{Key: k(5), Parent: k(4), Index: 4}
	c3 := Block{Key: k(6), Parent: k(3), Index: 3}
	d9 := Block{Key: k(7), Parent: k(8), Index: 9}
	for _, tc := range []struct {
		name   string
		blocks []Block
		want   []Extent
	}{
		{"nothing", nil, nil},
		{"a fork", []Block{b4, a0, c3, a2, b3, a1}, []Extent{{k(3), 0, 3}, {k(5), 3, 2}, {k(6), 3, 1}}},
		{"no fork left", []Block{a0, a1, a2, b3, b4}, []Extent{{k(5), 0, 5}}},
		{"a hole", []Block{a0, a1, b3, b4, d9}, []Extent{{k(2), 0, 2}, {k(5), 3, 2}, {k(7), 9, 1}}},
		{"two chains of one root", []Block{a0, {Key: k(9), Parent: k(99)}}, []Extent{{k(1), 0, 1}, {k(9), 0, 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, Extents(tc.blocks)); d != "" {
				t.Error(d)
			}
		})
	}
}

// Walking every extent from its end visits every block once.
func TestExtentsCoverEveryBlockOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfDistinct(rapid.IntRange(1, 60), rapid.ID[int]).Draw(t, "nodes")
		byKey := map[Key]Block{}
		var blocks []Block
		for _, n := range nodes {
			b := treeBlock(n)
			byKey[b.Key] = b
			blocks = append(blocks, b)
		}
		seen := map[Key]bool{}
		for _, e := range Extents(blocks) {
			key := e.Key
			for i := e.From + e.N - 1; i >= e.From; i-- {
				b, ok := byKey[key]
				if !ok || b.Index != i || seen[key] {
					t.Fatalf("extent %+v at %d: block %+v, there %v, seen %v", e, i, b, ok, seen[key])
				}
				seen[key], key = true, b.Parent
			}
		}
		if len(seen) != len(blocks) {
			t.Fatalf("%d of %d blocks covered", len(seen), len(blocks))
		}
	})
}

// A reader that knows the extents' net effect knows what one knows who applies
// every event.
func TestChangesAreTheNetEffect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := map[Key]bool{}
		for i := range 10 {
			before[treeKey(i)] = rapid.Bool().Draw(t, "before")
		}
		var events []Event
		want := map[Key]bool{}
		for k, v := range before {
			want[k] = v
		}
		for range rapid.IntRange(0, 30).Draw(t, "n") {
			b := treeBlock(rapid.IntRange(1, 9).Draw(t, "node"))
			switch rapid.IntRange(0, 12).Draw(t, "kind") {
			case 0:
				events = append(events, Event{Kind: EventCleared})
				clear(want)
			case 1, 2, 3, 4, 5, 6:
				events = append(events, Event{Kind: EventStored, Block: b})
				want[b.Key] = true
			default:
				events = append(events, Event{Kind: EventEvicted, Block: b})
				want[b.Key] = false
			}
		}
		stored, evicted, cleared := Changes(events)
		got := map[Key]bool{}
		if !cleared {
			got = before
		}
		parent := map[Key]Key{}
		for i := 1; i < 10; i++ {
			parent[treeKey(i)] = treeBlock(i).Parent
		}
		set := func(es []Extent, v bool) {
			for _, e := range es {
				for key, n := e.Key, e.N; n > 0; key, n = parent[key], n-1 {
					got[key] = v
				}
			}
		}
		set(evicted, false)
		set(stored, true)
		for i := range 10 {
			if k := treeKey(i); got[k] != want[k] {
				t.Fatalf("node %d: %v, want %v after %d events", i, got[k], want[k], len(events))
			}
		}
	})
}
