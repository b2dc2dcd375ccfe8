package retain

import (
	"testing"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

const second = int64(1e9)

// never is a Readers of blocks that nobody reads; use is when they were sealed.
type useTimes map[kvtier.SlotID]int64

func (u useTimes) Leased(kvtier.SlotID) bool      { return false }
func (u useTimes) LastUse(id kvtier.SlotID) int64 { return u[id] }

// node is a table with its keeper.
type node struct {
	t   *testing.T
	s   *kvtier.Slots
	k   *Keeper
	use useTimes
	now int64
}

func newNode(t *testing.T, slots int, cfg Config) *node {
	n := &node{t: t, s: kvtier.NewSlots(slots), k: NewKeeper(cfg), use: useTimes{}, now: 1000 * second}
	n.k.Add(0, n.s, 64)
	return n
}

// key names block i of a chain; chains with equal names begin alike.
func key(chain string, i int) kvtier.Key {
	k, err := kvtier.Chain(kvtier.Key{1}, i, []int32{int32(len(chain))}, []kvtier.Media{{Digest: chain, Length: 1}})
	if err != nil {
		panic(err)
	}
	return k
}

// seal seals blocks [from, to) of a chain behind parent, evicting as needed.
func (n *node) seal(chain string, parent kvtier.Key, from, to int) (tail kvtier.Key) {
	n.t.Helper()
	for i := from; i < to; i++ {
		b := kvtier.Block{Key: key(chain, i), Parent: parent, Index: i}
		r := n.s.Reserve(1, 1, nil)
		for len(r) == 0 {
			if _, ok := n.evict(); !ok {
				n.t.Fatal("nothing may be evicted")
			}
			r = n.s.Reserve(1, 1, nil)
		}
		id, _, err := n.s.Seal(1, r[0], b, n.now)
		if err != nil {
			n.t.Fatal(err)
		}
		n.use[id] = n.now
		n.k.Sealed(n.now, 0, b.Key)
		parent = b.Key
	}
	return parent
}

func (n *node) evict() (kvtier.Block, bool) {
	n.t.Helper()
	id, ok := n.s.Victim(n.use, n.now)
	if !ok {
		return kvtier.Block{}, false
	}
	class, _ := n.s.ClassOf(id)
	b, err := n.s.Evict(id)
	if err != nil {
		n.t.Fatal(err)
	}
	n.k.Evicted(n.now, 0, b, class)
	return b, true
}

func change(branch string, state schemas.BranchState, tail kvtier.Key, blocks int, at int64) *schemas.BranchChange {
	return &schemas.BranchChange{
		Tenant: "t", Session: branch, Branch: "main", State: state, AtNS: at, Inferred: true,
		Tail: schemas.Extent{Key: tail.String(), N: blocks},
	}
}

// TestReplacedGoesBeforeOlderWaiting is the case that recency decides wrongly: a
// branch that was just used and is then replaced by a summary goes before an older
// one that waits for a tool.
func TestReplacedGoesBeforeOlderWaiting(t *testing.T) {
	n := newNode(t, 16, Config{})
	old := n.seal("old", kvtier.Key{}, 0, 4)
	n.k.Branch(n.now, change("old", schemas.BranchRunning, old, 4, n.now))
	n.k.Branch(n.now, change("old", schemas.BranchToolWaiting, old, 4, n.now+1))
	n.now += 20 * second
	used := n.seal("used", kvtier.Key{}, 0, 6)
	n.k.Branch(n.now, change("used", schemas.BranchRunning, used, 6, n.now))
	n.k.Branch(n.now, change("used", schemas.BranchSuperseded, used, 6, n.now+1))
	n.k.Branch(n.now, change("used", schemas.BranchRunning, key("used", 1), 2, n.now+2))
	n.k.Tick(n.now)
	for i := 5; i >= 2; i-- {
		if b, _ := n.evict(); b.Key != key("used", i) {
			t.Fatalf("block %d of the replaced context was to go, %d of %s went", i, b.Index, b.Key.Short())
		}
	}
	if got := n.k.Stats().Classes[kvtier.ClassDead].Evictions; got != 4 {
		t.Errorf("%d dead blocks evicted, want 4", got)
	}
}
