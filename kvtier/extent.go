package kvtier

import (
	"cmp"
	"slices"
)

// Extent is a run of blocks along one edge of the prefix tree: N blocks from
// index From on. Key is the key of the last one, so it names the whole prefix.
type Extent struct {
	Key  Key
	From int
	N    int
}

// Extents groups blocks into the fewest runs: a run ends where the tree forks or
// where the next block is not among blocks. The result is ordered by From, then
// Key. No block may be given twice.
//
//	a0─a1─a2─b3─b4        a0…a2, b3…b4, c3
//	      └──c3
func Extents(blocks []Block) []Extent {
	return ExtentsCut(blocks, func(int) bool { return false })
}

// ExtentsCut is Extents with runs that also end behind block count n of their chain
// where stop(n).
func ExtentsCut(blocks []Block, stop func(n int) bool) []Extent {
	children := make(map[Key]int32, len(blocks)) // how many of blocks follow a key
	only := make(map[Key]int32, len(blocks))     // one of them
	present := make(map[Key]struct{}, len(blocks))
	for i, b := range blocks {
		present[b.Key] = struct{}{}
		if b.Index > 0 {
			children[b.Parent]++
			only[b.Parent] = int32(i)
		}
	}
	var out []Extent
	for _, b := range blocks {
		if _, ok := present[b.Parent]; ok && b.Index > 0 && children[b.Parent] == 1 && !stop(b.Index) {
			continue // inside the run that its parent is in
		}
		e := Extent{Key: b.Key, From: b.Index, N: 1}
		for e.N < len(blocks) && children[e.Key] == 1 && !stop(e.From+e.N) {
			e.Key = blocks[only[e.Key]].Key
			e.N++
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Extent) int {
		return cmp.Or(cmp.Compare(a.From, b.From), slices.Compare(a.Key[:], b.Key[:]))
	})
	return out
}

// Changes is the net effect of events in order, as extents. With cleared, all
// that was known before is gone, and stored is what came after.
func Changes(events []Event) (stored, evicted []Extent, cleared bool) {
	in, out, cleared := Net(events)
	return Extents(in), Extents(out), cleared
}

// Net is Changes as blocks, in the order of their last events.
func Net(events []Event) (stored, evicted []Block, cleared bool) {
	last := make(map[Key]int, len(events))
	for i, e := range events {
		if e.Kind == EventCleared {
			clear(last)
			cleared = true
			continue
		}
		if e.Kind == EventDropped { // left the disk: nothing changes in memory
			continue
		}
		last[e.Key] = i
	}
	for i, e := range events {
		if at, ok := last[e.Key]; !ok || at != i || e.Kind == EventCleared {
			continue
		}
		switch {
		case e.Kind == EventStored:
			stored = append(stored, e.Block)
		case !cleared:
			evicted = append(evicted, e.Block)
		}
	}
	return stored, evicted, cleared
}
