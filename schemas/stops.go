package schemas

// Extents of prompts and notices end at stops: block counts that all who name
// blocks know, 1 to 8 and then four per doubling. Two chains that share a prefix
// have equal keys at every stop within it, so a prefix can be recognised where it
// forks between two stops, and a chain of n blocks costs 4·log2(n) names at most.
//
//	1 2 3 4 5 6 7 8 10 12 14 16 20 24 28 32 40 …

// NextStop is the smallest stop above n blocks.
func NextStop(n int) int {
	if n < 8 {
		return max(n, 0) + 1
	}
	step := 2
	for step*8 <= n {
		step *= 2
	}
	return (n/step + 1) * step
}

// CutAtStops names blocks from..to-1 of a chain as extents that end at every stop
// and at to. key is the name of the block that is the last of its first end blocks.
func CutAtStops(from, to int, key func(end int) string) []Extent {
	var es []Extent
	for from < to {
		end := min(NextStop(from), to)
		es = append(es, Extent{Key: key(end), From: from, N: end - from})
		from = end
	}
	return es
}
