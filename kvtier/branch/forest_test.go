package branch

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// contextGen draws short contexts over few items, so that they share prefixes.
func contextGen() *rapid.Generator[[]Item] {
	return rapid.Custom(func(t *rapid.T) []Item {
		var out []Item
		for range rapid.IntRange(0, 2).Draw(t, "system") {
			out = append(out, item(rapid.SampledFrom([]string{"s1:900", "s2:50"}).Draw(t, "s")))
		}
		body := rapid.SampledFrom([]string{"u1", "u2:5000", "a1", "a2:70000", "t1:400", "t2:12", "i1:1500", "s3:0"})
		for range rapid.IntRange(0, 8).Draw(t, "body") {
			out = append(out, item(body.Draw(t, "item")))
		}
		return out
	})
}

func digests(items []Item) string {
	out := ""
	for _, it := range items {
		out += string(it.Digest[:])
	}
	return out
}

func shared(a, b []Item) int {
	n := 0
	for n < len(a) && n < len(b) && a[n].Digest == b[n].Digest {
		n++
	}
	return n
}

// model is a session kept the plain way: a list of items for each branch.
type model map[string][]Item

// verify compares a placement with what the plain way finds.
func (m model) verify(t *rapid.T, r Request, busy map[string]bool, p Placement) {
	on := p.Branch
	if p.New {
		on = p.Parent
		if _, known := m[p.Branch]; known {
			t.Fatalf("new branch %s is known", p.Branch)
		}
	} else if _, known := m[on]; !known {
		t.Fatalf("placed on unknown branch %+v", p)
	}
	if (p.Kind == First) != (len(m) == 0) || p.New != (p.Kind == First || p.Kind == Fork || p.Kind == SubAgent) {
		t.Fatalf("%+v with %d branches", p, len(m))
	}
	if p.Kind == First {
		return
	}
	if busy[on] && !p.New && p.Kind != Continue {
		t.Fatalf("%s on busy %s", p.Kind, on)
	}
	k := shared(m[on], r.Items)
	if p.Kept != k || p.KeptSize != sizeOf(r.Items[:k]) {
		t.Fatalf("%+v keeps %d items", p, k)
	}
	if p.Kind == Continue && (k != len(m[on]) || k == len(r.Items)) {
		t.Fatalf("%+v of a context of %d", p, len(m[on]))
	}
	if p.New {
		return
	}
	dead := 0
	for i := k; i < len(m[on]); i++ {
		held := false
		for b, c := range m {
			held = held || b != on && shared(c, m[on]) > i
		}
		if !held {
			dead++
		}
	}
	if p.Dropped != dead {
		t.Fatalf("%+v drops %d items", p, dead)
	}
}

// extends returns the idle branches that the request continues by the plain rule:
// their whole context is its start, and no context shares more with it.
func (m model) extends(r Request, busy map[string]bool) []string {
	most := 0
	for _, c := range m {
		most = max(most, shared(c, r.Items))
	}
	var out []string
	for b, c := range m {
		if len(c) > 0 && len(c) == most && shared(c, r.Items) == most && !busy[b] {
			out = append(out, b)
		}
	}
	return out
}

// TestAgainstModel: whatever is done with a forest, it holds the contexts that the
// plain way holds and its counts are right.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{MaxPast: rapid.IntRange(-1, 3).Draw(t, "past"), Drop: 50000}
		f, m, busy := NewForest(o), model{}, map[string]bool{}
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "x1"})
		made := 0
		t.Repeat(map[string]func(*rapid.T){
			"place": func(t *rapid.T) {
				r := Request{Items: contextGen().Draw(t, "items")}
				p := f.Place(r, func(b string) bool { return busy[b] }, func() string { made++; return fmt.Sprint("n", made) })
				m.verify(t, r, busy, p)
				// Superseded contexts may share more; without them the rule is exact.
				if on := m.extends(r, busy); len(on) > 0 && o.MaxPast < 0 && !slices.Contains(on, p.Branch) {
					t.Fatalf("%+v, not on one of %v", p, on)
				}
				if rapid.Bool().Draw(t, "set") {
					f.Set(p.Branch, p.Parent, r.Items, 1)
					m[p.Branch] = r.Items
				}
			},
			"grow": func(t *rapid.T) {
				b := name.Draw(t, "branch")
				its := append(slices.Clone(m[b]), contextGen().Draw(t, "more")...)
				f.Set(b, b, its, 2)
				m[b] = its
			},
			"set": func(t *rapid.T) {
				b, its := name.Draw(t, "branch"), contextGen().Draw(t, "items")
				f.Set(b, name.Draw(t, "parent"), its, 2)
				m[b] = its
			},
			"append": func(t *rapid.T) {
				b, it := name.Draw(t, "branch"), item(rapid.SampledFrom([]string{"a1", "a3", "a4"}).Draw(t, "item"))
				f.Append(b, it, 3)
				if c, known := m[b]; known {
					m[b] = append(slices.Clone(c), it)
				}
			},
			"busy": func(t *rapid.T) { b := name.Draw(t, "branch"); busy[b] = !busy[b] },
			"remove": func(t *rapid.T) {
				b := name.Draw(t, "branch")
				f.Remove(b)
				delete(m, b)
			},
			"": func(t *rapid.T) {
				check(t, f)
				if f.Len() != len(m) {
					t.Fatalf("%d branches, not %d", f.Len(), len(m))
				}
				for b, c := range m {
					if got := f.branches[b].line.tail(0); digests(got) != digests(c) {
						t.Fatalf("branch %s holds %v, not %v", b, got, c)
					}
				}
			},
		})
		for _, b := range slices.Sorted(maps.Keys(m)) {
			f.Remove(b)
		}
		check(t, f)
		if f.items != 0 || len(f.heads) != 0 {
			t.Fatalf("%d items and %d heads are left of nothing", f.items, len(f.heads))
		}
		if p := f.Place(Request{}, nil, func() string { return "z" }); p.Kind != First {
			t.Fatalf("%+v on an empty forest", p)
		}
	})
}

// TestReplay: the same calls give the same placements.
func TestReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.SliceOfN(contextGen(), 1, 30).Draw(t, "requests")
		run := func() (out []Placement) {
			x := newTable(Options{})
			for i, its := range requests {
				x.busy = map[string]bool{fmt.Sprint("b", i%3): i%2 == 0}
				p := x.place(Request{At: int64(i), Items: its})
				x.f.Set(p.Branch, p.Parent, its, int64(i))
				out = append(out, p)
			}
			return out
		}
		if a, b := run(), run(); !slices.Equal(a, b) {
			t.Fatalf("%v\nthen %v", a, b)
		}
	})
}

// TestOrder: which branch a request continues does not depend on the order in which
// the branches came, where one only can be meant.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		contexts := rapid.SliceOfNDistinct(contextGen(), 1, 12, digests).Draw(t, "contexts")
		which := rapid.IntRange(0, len(contexts)-1).Draw(t, "which")
		request := append(slices.Clone(contexts[which]), item("a9"), item("u9"))
		order := rapid.Permutation(rangeOf(len(contexts))).Draw(t, "order")
		place := func(order []int) Placement {
			x := newTable(Options{})
			for _, i := range order {
				x.f.Set(fmt.Sprint("c", i), "", contexts[i], 0)
			}
			return x.place(Request{Items: request})
		}
		a, b := place(rangeOf(len(contexts))), place(order)
		if a != b && len(contexts[which]) > 0 {
			t.Fatalf("%+v, in another order %+v", a, b)
		}
		if want := fmt.Sprint("c", which); len(contexts[which]) > 0 && (a.Branch != want || a.Kind != Continue) {
			t.Fatalf("%+v, not on %s", a, want)
		}
	})
}

func rangeOf(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestBounds: a forest stays within its bounds whatever comes, and forgets the
// branches that were unused longest.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{MaxBranches: 4, MaxItems: 20, MaxContext: 6, MaxPast: 2}
		f := NewForest(o)
		for i := range rapid.IntRange(1, 40).Draw(t, "n") {
			its := contextGen().Draw(t, "items")
			p := f.Place(Request{Items: its}, nil, func() string { return fmt.Sprint("n", i) })
			f.Set(p.Branch, "", its, 0)
			f.Append(p.Branch, item("a1"), 0)
			check(t, f)
			if f.items > o.MaxItems+o.MaxContext || f.Len() > o.MaxBranches || f.branches[p.Branch] == nil {
				t.Fatalf("%d items, %d branches", f.items, f.Len())
			}
		}
	})
	f := NewForest(Options{MaxBranches: 2})
	for _, b := range []string{"a", "b", "a", "c"} {
		f.Set(b, "", items("u"+b), 0)
	}
	if f.branches["b"] != nil || f.branches["a"] == nil || f.branches["c"] == nil {
		t.Errorf("the branch that was unused longest was not the one forgotten")
	}
	for i := range 3 * pending {
		f.Place(Request{Items: items("u9")}, func(string) bool { return true }, func() string { return fmt.Sprint("n", i) })
	}
	if len(f.placed) > pending || len(f.placedOrder) > pending {
		t.Errorf("%d notes of placements, at most %d", len(f.placed), pending)
	}
}
