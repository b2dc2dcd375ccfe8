package branch

import (
	"fmt"
	"testing"
)

func msg(role Role, text string, size int) Item {
	it := Item{Size: size, Role: role}
	copy(it.Digest[:], text)
	return it
}

func TestSmoke(t *testing.T) {
	f := NewForest(Options{})
	n := 0
	fresh := func() string { n++; return fmt.Sprint("b-", n) }
	busy := map[string]bool{}
	isBusy := func(b string) bool { return busy[b] }
	sys := msg(System, "sys", 5000)
	a := []Item{sys, msg(User, "u1", 10)}
	place := func(items []Item, want Kind, branch string) {
		t.Helper()
		p := f.Place(Request{Items: items}, isBusy, fresh)
		if p.Kind != want || p.Branch != branch {
			t.Fatalf("%+v, want %s on %s", p, want, branch)
		}
		f.Set(p.Branch, p.Parent, items, 0)
	}
	place(a, First, "b-1")
	f.Append("b-1", msg(Assistant, "a1", 20), 0)
	place(append(a[:2:2], msg(Assistant, "a1", 20), msg(User, "u2", 5)), Continue, "b-1")
	busy["b-1"] = true
	place(append(a[:2:2], msg(Assistant, "a1", 20), msg(User, "u3", 5)), Fork, "b-2")
	place([]Item{sys, msg(User, "v1", 10)}, SubAgent, "b-3")
}
