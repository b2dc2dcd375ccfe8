package branch

import "testing"

// check verifies the structure of a forest: sizes, counts, order and that no node
// is superfluous.
func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, f *Forest,
) {
	t.Helper()
	items, lives := 0, 0
	var visit func(n *node) (live int)
	visit = func(n *node) int {
		live := 0
		for l := n.lines; l != nil; l = l.next {
			if l.end != n || l.next != nil && l.next.prev != l {
				t.Fatalf("a line at depth %d is linked wrongly", n.depth)
			}
			if l.live {
				live++
				lives++
				if l.branch.line != l || f.branches[l.branch.name] != l.branch {
					t.Fatalf("the live line at depth %d is not its branch's", n.depth)
				}
			}
			if l.seq > n.touched {
				t.Fatalf("a line of %d at a node touched at %d", l.seq, n.touched)
			}
		}
		kids := 0
		for k := n.newest; k != nil; k = k.next {
			kids++
			if n.kids[k.edge[0].Digest] != k || k.parent != n || k.depth != n.depth+len(k.edge) || k.size != n.size+sizeOf(k.edge) {
				t.Fatalf("the child at depth %d of a node at %d is wrong", k.depth, n.depth)
			}
			if k.touched > n.touched || k.next != nil && (k.next.touched > k.touched || k.next.prev != k) || k.next == nil && n.oldest != k {
				t.Fatalf("the children of a node at depth %d are out of order", n.depth)
			}
			items += len(k.edge)
			live += visit(k)
		}
		if kids != len(n.kids) || live != n.live {
			t.Fatalf("depth %d: %d children of %d listed, %d live lines of %d counted", n.depth, kids, len(n.kids), n.live, live)
		}
		if n.parent != nil && n.lines == nil && kids < 2 {
			t.Fatalf("a node at depth %d with %d children and no line", n.depth, kids)
		}
		return live
	}
	visit(f.root)
	if items != f.items || lives != len(f.branches) {
		t.Fatalf("%d items counted, %d there; %d live lines of %d branches", f.items, items, lives, len(f.branches))
	}
	listed, headed, pasts := 0, 0, 0
	for s := f.newest; s != nil; s = s.next {
		listed++
		if f.branches[s.name] != s || s.next == nil && f.oldest != s || len(s.past) > f.opt.MaxPast {
			t.Fatalf("branch %q is listed wrongly", s.name)
		}
		pasts += len(s.past)
		for _, l := range s.past {
			if l.live || l.branch != s || l.end.above(s.line.end) {
				t.Fatalf("branch %q has a superseded context that is not", s.name)
			}
		}
		if s.headed {
			headed++
		}
	}
	for _, s := range f.heads {
		for ; s != nil; s = s.headNext {
			headed--
		}
	}
	if listed != len(f.branches) || headed != 0 || pasts != f.pasts {
		t.Fatalf("%d of %d branches listed, heads off by %d", listed, len(f.branches), headed)
	}
	if len(f.branches) > f.opt.MaxBranches || len(f.placed) != len(f.placedOrder) {
		t.Fatalf("%d branches, %d notes of %d", len(f.branches), len(f.placed), len(f.placedOrder))
	}
}

// TestCheckFindsFaults: the check is not blind.
func TestCheckFindsFaults(t *testing.T) {
	for name, spoil := range map[string]func(*Forest){
		"items":  func(f *Forest) { f.items++ },
		"live":   func(f *Forest) { f.root.live++ },
		"size":   func(f *Forest) { f.root.newest.size++ },
		"order":  func(f *Forest) { f.root.oldest.touched = 99 },
		"branch": func(f *Forest) { delete(f.branches, "b1") },
		"heads":  func(f *Forest) { clear(f.heads) },
	} {
		f := NewForest(Options{})
		f.Set("b1", "", items("s1", "u1"), 0)
		f.Set("b2", "", items("s2", "u2"), 0)
		check(t, f)
		spoil(f)
		var r recorder
		check(&r, f)
		if !r.failed {
			t.Errorf("%s: not found", name)
		}
	}
}

type recorder struct{ failed bool }

func (r *recorder) Helper()               {}
func (r *recorder) Fatalf(string, ...any) { r.failed = true }
