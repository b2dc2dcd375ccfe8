package retain

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// TestQueuedTurn: while turns wait in a queue, the blocks of one that just began are
// kept before those of branches that wait, and no longer than such turns take.
func TestQueuedTurn(t *testing.T) {
	first := func(queue int64, after int64) string {
		n := newNode(t, 40, Config{FreshNS: -1})
		tails := map[string]kvtier.Key{}
		for _, name := range []string{"waits", "runs"} {
			tails[name] = n.seal(name, kvtier.Key{1}, 0, 10)
		}
		for range 20 { // turns of 200 s, waits of 30 s
			for _, name := range []string{"waits", "runs"} {
				n.k.Branch(n.now, change(name, schemas.BranchRunning, tails[name], 10, n.now))
				n.now += 200 * second
				c := change(name, schemas.BranchToolWaiting, tails[name], 10, n.now)
				c.Tool, c.QueueNS = "bash", queue
				n.k.Branch(n.now, c)
				n.now += 30 * second
			}
		}
		n.k.Branch(n.now, change("waits", schemas.BranchRunning, tails["waits"], 10, n.now))
		c := change("waits", schemas.BranchToolWaiting, tails["waits"], 10, n.now)
		c.Tool = "bash"
		n.k.Branch(n.now, c)
		n.k.Branch(n.now, change("runs", schemas.BranchRunning, tails["runs"], 10, n.now))
		n.now += after
		for range 4 {
			n.k.Tick(max(n.now, n.k.Next()))
		}
		b, ok := n.evict()
		if !ok {
			t.Fatal("nothing goes")
		}
		if b.Key == tails["runs"] {
			return "runs"
		}
		return "waits"
	}
	for _, c := range []struct {
		queue, after int64
		want         string
	}{
		{0, second, "runs"}, {1e6, second, "runs"}, {5 * second, second, "waits"}, {5 * second, 60 * second, "runs"},
	} {
		if got := first(c.queue, c.after); got != c.want {
			t.Errorf("with %.3f s of queue, %d s after a turn began: %s goes first, want %s", float64(c.queue)/1e9, c.after/second, got, c.want)
		}
	}
}

// follows notes what a store below memory hears.
type follows struct{ heard []string }

func (f *follows) Hold(b kvtier.BranchID, tail kvtier.Key) {
	f.heard = append(f.heard, fmt.Sprintf("hold %d %s", b, tail.Short()))
}

func (f *follows) Drop(b kvtier.BranchID, dead bool) {
	f.heard = append(f.heard, fmt.Sprintf("drop %d %v", b, dead))
}

func (f *follows) Rank(b kvtier.BranchID, c kvtier.Class, _ float64) {
	f.heard = append(f.heard, fmt.Sprintf("rank %d %s", b, c))
}

// TestFollower: what lies below memory hears the same of each branch as the tables.
func TestFollower(t *testing.T) {
	f := &follows{}
	n := newNode(t, 40, Config{})
	n.k.Follow(f)
	tail := n.seal("a", kvtier.Key{1}, 0, 6)
	c := change("a", schemas.BranchToolWaiting, tail, 6, n.now)
	c.Keep = 4
	n.k.Branch(n.now, c)
	c = change("a", schemas.BranchEnded, tail, 6, n.now+1)
	c.Inferred = false
	n.k.Branch(n.now+1, c)
	n.k.Tick(n.now + 2*second)
	want := []string{
		"hold 1 " + tail.Short(), "hold 1 " + key("a", 3).Short(), "rank 1 waiting", "drop 1 true",
	}
	if !slices.Equal(f.heard, want) {
		t.Errorf("heard %q, want %q", f.heard, want)
	}
}
