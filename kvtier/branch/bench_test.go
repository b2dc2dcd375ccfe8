package branch

import (
	"fmt"
	"testing"
)

// crowd is a session of n branches. Each has a conversation of 200 items, of which
// the first common ones are the same for all.
func crowd(n, common int) (*Forest, func(i int) []Item) {
	mk := func(role Role, a, b int) Item {
		it := Item{Role: role, Size: 300}
		copy(it.Digest[:], fmt.Sprintf("%08d%08d", a, b))
		return it
	}
	context := func(i int) []Item {
		out := []Item{mk(System, 0, 0)}
		for k := 1; k < 200; k++ {
			role := []Role{Tool, Assistant}[k%2]
			if k < common {
				out = append(out, mk(role, 0, k))
			} else {
				out = append(out, mk(role, i+1, k))
			}
		}
		return out
	}
	f := NewForest(Options{MaxItems: 4 << 20})
	for i := range n {
		f.Set(fmt.Sprint("b", i), "", context(i), int64(i))
	}
	return f, context
}

// BenchmarkPlace: one request of 200 items in a session of 10,000 branches.
func BenchmarkPlace(b *testing.B) {
	idle := func(string) bool { return false }
	busy := func(string) bool { return true }
	fresh := func() string { return "new" }
	for _, common := range []int{1, 100} {
		f, context := crowd(10_000, common)
		change := func(k int) func(int) []Item {
			return func(i int) []Item {
				out := context(i)
				out[k].Digest[0] = 'x'
				return out
			}
		}
		for _, c := range []struct {
			name    string
			request func(int) []Item
			busy    func(string) bool
			want    Kind
		}{
			{"continue", func(i int) []Item { return append(context(i), Item{Digest: [16]byte{9}, Role: Assistant}) }, idle, Continue},
			{"fork", change(150), busy, Fork},
			{"rewrite", change(150), idle, Rewrite},
			{"system", change(0), idle, Rewrite},
			{"apart", change(1), idle, Rewrite},
			{"common", change(common), idle, Rewrite},
		} {
			if c.name == "system" && common > candidates {
				continue // so many that start alike are not all looked at
			}
			b.Run(fmt.Sprintf("%s/common=%d", c.name, common), func(b *testing.B) {
				var requests [][]Item
				for i := range 16 {
					requests = append(requests, c.request(i*601))
				}
				i := 0
				for b.Loop() {
					p := f.Place(Request{Items: requests[i%16]}, c.busy, fresh)
					if p.Kind != c.want {
						b.Fatalf("%+v", p)
					}
					i++
				}
			})
		}
	}
}

// BenchmarkTurn: place, set and append of a turn, each branch in its turn.
func BenchmarkTurn(b *testing.B) {
	f, context := crowd(10_000, 50)
	var requests [][]Item
	for i := range 16 {
		requests = append(requests, context(i*601))
	}
	i := 0
	for b.Loop() {
		r := requests[i%16]
		p := f.Place(Request{Items: r}, nil, func() string { return "new" })
		f.Set(p.Branch, "", r, 0)
		f.Append(p.Branch, Item{Digest: [16]byte{byte(i), 1}, Role: Assistant}, 0)
		i++
	}
}
