package schemas_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

func TestNextStop(t *testing.T) {
	want := []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80}
	var got []int
	for n := 0; len(got) < len(want); n = got[len(got)-1] {
		got = append(got, schemas.NextStop(n))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stops (-want +got):\n%s", diff)
	}
	if got := schemas.NextStop(-3); got != 1 {
		t.Errorf("the stop above a negative count is %d", got)
	}
}

// TestCutAtStops: wherever a chain is cut into pieces, the pieces continue each
// other and every stop within it is the end of one.
func TestCutAtStops(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		from := rapid.IntRange(0, 5000).Draw(rt, "from")
		to := from + rapid.IntRange(0, 20_000).Draw(rt, "blocks")
		at, ends := from, map[int]bool{}
		for _, e := range schemas.CutAtStops(from, to, strconv.Itoa) {
			if e.From != at || e.N < 1 || e.Key != strconv.Itoa(e.From+e.N) {
				rt.Fatalf("%+v does not continue at %d", e, at)
			}
			at = e.From + e.N
			ends[at] = true
		}
		if at != to {
			rt.Fatalf("the pieces end at %d of %d", at, to)
		}
		for n := schemas.NextStop(from); n <= to; n = schemas.NextStop(n) {
			if !ends[n] {
				rt.Fatalf("nothing ends at stop %d of %d..%d", n, from, to)
			}
		}
		if len(ends) > 64 {
			rt.Fatalf("%d pieces", len(ends))
		}
	})
}
