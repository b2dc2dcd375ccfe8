package flip

import (
	"cmp"
	"slices"
)

// Mover is an executor that may change its role.
type Mover struct {
	ID   string
	Size float64
	Busy int // turns that it holds: they would be handed over
	// Since is when its role last changed, in seconds; those that changed longest ago go
	// first, so that the same one is not sent back and forth.
	Since float64
}

// Order sorts those that may change their role: the least busy first, because every turn that it
// holds must be handed over; then the one that changed longest ago.
func Order(xs []Mover) {
	slices.SortFunc(xs, func(a, b Mover) int {
		return cmp.Or(cmp.Compare(float64(a.Busy)/max(a.Size, 1), float64(b.Busy)/max(b.Size, 1)), cmp.Compare(a.Since, b.Since), cmp.Compare(a.ID, b.ID))
	})
}

// Counts are how many executors a candidate moves: all up to 8, then fewer and fewer,
// so that a cell of 256 has some 20 candidates each way at most.
func Counts(most int) []int {
	var out []int
	for n := 1; n <= most; n += max(1, n/4) {
		out = append(out, n)
		if len(out) == 14 {
			break
		}
	}
	if len(out) > 0 && out[len(out)-1] != most {
		out = append(out, most)
	}
	return out
}
