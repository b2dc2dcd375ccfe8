package branch

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// TestCyclicParents: a parent is a name; cycles, itself and unknown ones do no harm.
func TestCyclicParents(t *testing.T) {
	f := NewForest(Options{})
	f.Set("a", "b", items("s1", "u1"), 0)
	f.Set("b", "a", items("s1", "u2"), 0)
	f.Set("c", "c", items("s1", "u3"), 0)
	f.Set("d", "nobody", items("s1", "u4"), 0)
	f.Set("a", "d", items("s1", "u1", "a1"), 0)
	check(t, f)
	for i, b := range []string{"a", "b", "c", "d"} {
		p := f.Place(Request{Items: items("s1", fmt.Sprint("u", i+1), "a1", "u9")}, nil, func() string { return "new" })
		if p.Branch != b || p.Kind != Continue {
			t.Errorf("%+v, not on %s", p, b)
		}
	}
	f.Remove("b")
	f.Remove("b")
	f.Remove("nobody")
	f.Append("nobody", item("a1"), 0)
	if f.Len() != 3 {
		t.Errorf("%d branches", f.Len())
	}
	check(t, f)
}

// TestExtremes: empty contexts, time that runs backwards, sizes beyond all measure,
// roles that do not exist, a fresh name that is taken, a context beyond the bound.
func TestExtremes(t *testing.T) {
	f := NewForest(Options{MaxContext: 50})
	f.Set("", "", nil, math.MaxInt64)
	f.Append("", Item{Size: math.MaxInt}, math.MinInt64)
	f.Set("e", "", nil, 0)
	var long []Item
	for i := range 200 {
		it := Item{Size: math.MaxInt, Role: Role(i)}
		it.Digest[0], it.Digest[1] = byte(i), 7
		long = append(long, it)
	}
	for range 3 {
		p := f.Place(Request{At: -1, Items: long, Hint: "no such hint"}, nil, func() string { return "e" })
		if p.KeptSize < 0 || p.DroppedSize < 0 {
			t.Errorf("%+v", p)
		}
		f.Set(p.Branch, p.Branch, long, -1)
		f.Append(p.Branch, Item{Size: math.MinInt}, 0)
		check(t, f)
	}
	if f.branches["e"].line.end.depth > 50 {
		t.Errorf("a context of %d items", f.branches["e"].line.end.depth)
	}
	if p := f.Place(Request{Items: long}, nil, nil); p.Branch != "e" {
		t.Errorf("a context that was cut is not found: %+v", p)
	}
}

// TestCrowd: 10,000 branches that part at every depth are told apart, and no call
// takes time in proportion to their number.
func TestCrowd(t *testing.T) {
	const n = 10_000
	f, context := crowd(n, 20)
	chain := context(0)
	for i := range n / 2 { // half of them hang on one another
		f.Set(fmt.Sprint("b", i), fmt.Sprint("b", i-1), append(chain[:i%200:i%200], item(fmt.Sprint("u", i))), 0)
	}
	check(t, f)
	if f.Len() != n {
		t.Fatalf("%d branches", f.Len())
	}
	start := time.Now()
	for i := range n {
		its := append(context(i), item("a1"))
		if i < n/2 {
			its = append(chain[:i%200:i%200], item(fmt.Sprint("u", i)), item("a1"))
		}
		if p := f.Place(Request{Items: its}, nil, nil); p.Branch != fmt.Sprint("b", i) || p.Kind != Continue {
			t.Fatalf("%+v, not on b%d", p, i)
		}
	}
	t.Logf("%v for each", time.Since(start)/n)
	for i := range n {
		f.Remove(fmt.Sprint("b", n-1-i))
	}
	check(t, f)
}

// FuzzForest reads calls from bytes; whatever they are, the structure stays whole.
func FuzzForest(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Add([]byte("place and set and append and remove, over and over again"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o := Options{MaxBranches: 6, MaxItems: 60, MaxContext: 12, MaxPast: 2, Drop: 1000}
		x := NewForest(o)
		next := func() byte {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return b
		}
		one := func() Item {
			b := next()
			it := Item{Role: Role(b >> 5), Media: b&16 != 0, Size: int(int8(next())) * 100}
			it.Digest[0] = b & 15
			return it
		}
		for len(data) > 0 {
			op, name := next(), string(rune('a'+next()%8))
			var its []Item
			for range next() % 16 {
				its = append(its, one())
			}
			switch op % 5 {
			case 0, 1:
				r := Request{At: int64(binary.LittleEndian.Uint16([]byte{op, 1})), Items: its}
				if op&32 != 0 {
					r.Hint = schemas.HintCompaction
				}
				p := x.Place(r, func(b string) bool { return op&64 != 0 && b < "d" }, func() string { return name })
				if p.Kept < 0 || p.Kept > len(its) || p.Dropped < 0 || p.KeptSize < 0 || p.DroppedSize < 0 {
					t.Fatalf("%+v", p)
				}
				if op&128 != 0 {
					x.Set(p.Branch, p.Parent, its, r.At)
				}
			case 2:
				x.Set(name, string(rune('a'+op%9)), its, 0)
			case 3:
				x.Append(name, one(), 0)
			case 4:
				x.Remove(name)
			}
			check(t, x)
		}
	})
}
