package retain

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRecent compares with a plain list, latest first.
func TestRecent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 5).Draw(t, "most")
		r := newRecent[int, int](most)
		var list []int
		vals := map[int]int{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			k := rapid.IntRange(0, 8).Draw(t, "key")
			i := slices.Index(list, k)
			if rapid.IntRange(0, 4).Draw(t, "forget") == 0 {
				r.forget(k)
				if i >= 0 {
					list = slices.Delete(list, i, i+1)
				}
				continue
			}
			if i >= 0 {
				list = slices.Delete(list, i, i+1)
			} else {
				vals[k] = 0
			}
			list = slices.Insert(list, 0, k)
			list = list[:min(len(list), most)]
			*r.use(k)++
			vals[k]++
		}
		if len(r.m) != len(list) {
			t.Fatalf("%d entries, want %v", len(r.m), list)
		}
		e := r.root.next
		for _, k := range list {
			if e.key != k || *r.find(k) != vals[k] {
				t.Fatalf("%d is %d, want %d to be %d", e.key, e.val, k, vals[k])
			}
			e = e.next
		}
	})
}
