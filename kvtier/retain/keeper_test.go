package retain

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

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

// waiting seals a chain of n blocks and says that its branch ran and waits.
func (n *node) waiting(name string, blocks int) (tail kvtier.Key) {
	n.t.Helper()
	n.now += second
	tail = n.seal(name, kvtier.Key{}, 0, blocks)
	n.k.Branch(n.now, change(name, schemas.BranchRunning, tail, blocks, n.now))
	n.k.Branch(n.now+1, change(name, schemas.BranchToolWaiting, tail, blocks, n.now+1))
	return tail
}

func (n *node) class(k kvtier.Key) kvtier.Class {
	n.t.Helper()
	id, ok := n.s.Find(k)
	if !ok {
		n.t.Fatalf("block %s is not there", k.Short())
	}
	c, _ := n.s.ClassOf(id)
	return c
}

// TestTenantCap: the waiting branches of one tenant pin its share at most when there is
// another tenant; those that score best stay.
func TestTenantCap(t *testing.T) {
	n := newNode(t, 64, Config{TenantShare: 0.25})
	var tails []kvtier.Key
	for _, name := range []string{"a", "bb", "ccc", "dddd", "eeeee"} {
		tails = append(tails, n.waiting(name, 8))
	}
	idle := func() (out int) {
		n.now += 2 * second
		for range 3 {
			n.k.Tick(n.now)
			n.now += 2 * second
		}
		for _, tail := range tails {
			if n.class(tail) == kvtier.ClassIdle {
				out++
			}
		}
		return out
	}
	if got := idle(); got != 0 {
		t.Errorf("%d of 5 branches are idle with one tenant", got)
	}
	other := n.seal("other", kvtier.Key{}, 0, 2)
	c := change("other", schemas.BranchToolWaiting, other, 2, n.now)
	c.Tenant = "u"
	n.k.Branch(n.now, c)
	if got := idle(); got != 3 {
		t.Errorf("%d of 5 branches of 8 blocks are idle, want 3: 16 blocks are a tenant's share", got)
	}
	if n.class(other) != kvtier.ClassWaiting {
		t.Error("the other tenant pays for it")
	}
	c.State, c.AtNS, c.Inferred = schemas.BranchEnded, n.now, false
	n.k.Branch(n.now, c)
	n.k.forget(n.k.branches["u/other/main"])
	if got := idle(); got != 0 {
		t.Errorf("%d of 5 branches are idle when the other tenant is gone", got)
	}
}

// TestClockSetBack: branches are ranked on when the clock is set back.
func TestClockSetBack(t *testing.T) {
	n := newNode(t, 64, Config{})
	n.waiting("a", 8)
	n.k.Tick(n.now)
	n.now -= 600 * second
	n.k.Tick(n.now)
	if next := n.k.Next(); next <= n.now || next > n.now+second {
		t.Errorf("after the clock was set back, branches are ranked again in %d s", (next-n.now)/second)
	}
}

// TestKeep: what the template will drop is dead while the branch waits, and the rest
// is not.
func TestKeep(t *testing.T) {
	for _, late := range []bool{false, true} {
		n := newNode(t, 16, Config{})
		tail := key("k", 7)
		if !late {
			n.seal("k", kvtier.Key{}, 0, 8)
		}
		n.k.Branch(n.now, change("k", schemas.BranchRunning, key("k", 3), 4, n.now))
		c := change("k", schemas.BranchUserWaiting, tail, 8, n.now+1)
		c.Keep = 5
		n.k.Branch(n.now+1, c)
		if late { // the last blocks are sealed after the answer was known
			n.seal("k", kvtier.Key{}, 0, 8)
			n.now += 2 * second
			n.k.Tick(n.now)
		}
		n.seal("other", kvtier.Key{}, 0, 2)
		for i := 7; i >= 5; i-- {
			if b, _ := n.evict(); b.Key != key("k", i) {
				t.Fatalf("late %v: block %d was to go, %d of %s went", late, i, b.Index, b.Key.Short())
			}
		}
		if n.class(key("k", 4)) != kvtier.ClassWaiting {
			t.Errorf("late %v: what is kept is %s", late, n.class(key("k", 4)))
		}
	}
}

// TestDoubtedTenant: of a tenant that is believed nothing, blocks go by last use alone,
// whatever is said; of one whose words are doubted, what is inferred counts.
func TestDoubtedTenant(t *testing.T) {
	for _, level := range []Level{LevelHints, LevelInfer, LevelLRU} {
		n := newNode(t, 16, Config{})
		if level < LevelHints {
			n.k.credit.tenants.use("t").until = 1 << 62
		}
		if level < LevelInfer {
			n.k.credit.node.until = 1 << 62
		}
		n.waiting("old", 4)
		young := n.waiting("young", 4)
		ended := change("young", schemas.BranchEnded, young, 4, n.now+2)
		ended.Inferred = false
		n.k.Branch(n.now+2, ended)
		n.now += 2 * second
		n.k.Tick(n.now)
		b, _ := n.evict()
		want := key("old", 3)
		if level == LevelHints {
			want = young
		}
		if level != LevelInfer && b.Key != want {
			t.Errorf("level %s: block %d of %s went first", level, b.Index, b.Key.Short())
		}
		if got := n.k.Stats().Classes[kvtier.ClassDead].Evictions; got > 0 != (level == LevelHints) {
			t.Errorf("level %s: %d dead blocks went", level, got)
		}
	}
	// A context that was replaced stays by last use, too.
	n := newNode(t, 16, Config{})
	n.k.credit.tenants.use("t").until, n.k.credit.node.until = 1<<62, 1<<62
	n.waiting("old", 4)
	young := n.waiting("young", 4)
	n.k.Branch(n.now+2, change("young", schemas.BranchSuperseded, young, 4, n.now+2))
	n.k.Branch(n.now+2, change("young", schemas.BranchRunning, key("young", 0), 1, n.now+2))
	n.now += 2 * second
	n.k.Tick(n.now)
	for i := 3; i >= 0; i-- {
		if b, _ := n.evict(); b.Key != key("old", i) {
			t.Fatalf("block %d of the old session was to go, %d of %s went", i, b.Index, b.Key.Short())
		}
	}
	for range 4 {
		n.evict()
	}
	n.now += 2 * second
	n.k.Tick(n.now)
	if st := n.k.Stats(); st.Branches != 2 {
		t.Errorf("%d branches are remembered, want 2: nothing is left of what was replaced", st.Branches)
	}
}

// TestBranchTableIsBounded: those that ended are forgotten first, then those that were
// not heard of longest; the tables forget them too.
func TestBranchTableIsBounded(t *testing.T) {
	n := newNode(t, 64, Config{Branches: 4})
	for _, name := range []string{"a", "bb", "ccc"} {
		n.waiting(name, 2)
	}
	n.k.Branch(n.now, change("bb", schemas.BranchEnded, key("bb", 1), 2, n.now))
	for _, name := range []string{"dddd", "eeeee", "ffffff"} {
		n.waiting(name, 2)
	}
	var left []string
	for _, b := range n.k.ring {
		left = append(left, b.wait.Session)
	}
	slices.Sort(left)
	if want := []string{"ccc", "dddd", "eeeee", "ffffff"}; !slices.Equal(left, want) {
		t.Errorf("remembered are %v, want %v", left, want)
	}
	if err := n.s.CheckIntegrity(); err != nil {
		t.Error(err)
	}
	if c := n.class(key("a", 1)); c != kvtier.ClassIdle {
		t.Errorf("a forgotten branch's blocks are %s", c)
	}
}

// TestRegrets: evicted and computed again within a minute counts, once; later does not.
func TestRegrets(t *testing.T) {
	n := newNode(t, 16, Config{Regrets: 4})
	n.seal("a", kvtier.Key{}, 0, 6)
	for range 6 {
		n.evict()
	}
	n.seal("a", kvtier.Key{}, 0, 3) // blocks 0 to 2; the ring remembers 0 to 3
	n.now += 61 * second
	n.seal("a", key("a", 2), 3, 4)
	if got := n.k.Stats().Classes[kvtier.ClassIdle]; got.Evictions != 6 || got.Regrets != 3 {
		t.Errorf("%+v, want 6 evictions and 3 regrets", got)
	}
}

// TestHits: what a branch finds when it goes on counts for the class that it had.
func TestHits(t *testing.T) {
	n := newNode(t, 16, Config{})
	tail := n.waiting("a", 6)
	n.evict()
	n.k.Branch(n.now+3, change("a", schemas.BranchRunning, tail, 6, n.now+3))
	n.k.Branch(n.now+3, change("a", schemas.BranchRunning, tail, 6, n.now+3)) // said again
	if got := n.k.Stats().Classes[kvtier.ClassWaiting].Hits; got != 5 {
		t.Errorf("%d hits, want the 5 blocks that are left", got)
	}
}

// TestAnyMessages: whatever comes in whatever order, tables stay whole and bounded.
func TestAnyMessages(t *testing.T) {
	states := []schemas.BranchState{
		schemas.BranchRunning, schemas.BranchToolWaiting, schemas.BranchUserWaiting, schemas.BranchSuperseded, schemas.BranchEnded, "nonsense",
	}
	rapid.Check(t, func(rt *rapid.T) {
		n := newNode(t, 24, Config{Branches: 5})
		second2 := kvtier.NewSlots(8)
		n.k.Add(2, second2, 32)
		names := rapid.SampledFrom([]string{"a", "bb", "ccc"})
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			n.now += rapid.Int64Range(0, 2*second).Draw(rt, "pause")
			name := names.Draw(rt, "chain")
			i := rapid.IntRange(0, 6).Draw(rt, "block")
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				n.seal(name, kvtier.Key{}, 0, 1)
				if _, ok := n.s.Find(key(name, i)); !ok && i > 0 {
					if _, ok := n.s.Find(key(name, i-1)); ok {
						n.seal(name, key(name, i-1), i, i+1)
					}
				}
			case 1, 2:
				c := change(rapid.SampledFrom([]string{"s", "t", "u", "v"}).Draw(rt, "session"), rapid.SampledFrom(states).Draw(rt, "state"), key(name, i), i+1, n.now)
				c.Tenant, c.Inferred = names.Draw(rt, "tenant"), rapid.Bool().Draw(rt, "inferred")
				c.Branch = rapid.SampledFrom([]string{"m", "n", "o"}).Draw(rt, "branch")
				c.Keep = rapid.IntRange(-1, 9).Draw(rt, "keep")
				c.ResumeNS = rapid.Int64().Draw(rt, "resume")
				if rapid.Bool().Draw(rt, "bad tail") {
					c.Tail = schemas.Extent{Key: "zz", From: -5, N: rapid.IntRange(-2, 2).Draw(rt, "n")}
				}
				if rapid.Bool().Draw(rt, "doubt") {
					n.k.credit.tenants.use(c.Tenant).until = n.now + second
					n.k.credit.node.until = n.now + second
				}
				n.k.Branch(n.now, c)
			case 3:
				n.evict()
			case 4:
				n.k.Tick(n.now)
			case 5:
				n.k.Remove(2)
				n.k.Add(2, second2, 32)
			}
			if err := n.s.CheckIntegrity(); err != nil {
				rt.Fatal(err)
			}
			if len(n.k.ring) > 5 || len(n.k.branches) != len(n.k.ring) || len(n.k.byID) != len(n.k.ring) || len(n.k.past) > len(n.k.ring) || n.k.live.Len()+n.k.over.Len() != len(n.k.ring) {
				rt.Fatalf("%d branches, %d by name, %d by number, %d and %d listed", len(n.k.ring), len(n.k.branches), len(n.k.byID), n.k.live.Len(), n.k.over.Len())
			}
		}
	})
}
