package hostmem

import (
	"testing"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// began is when the process began, Unix time.
var began = time.Now().UnixNano()

// says is a BRANCH message about a session's main branch, whose context is chain. It
// changed at nanoseconds after these tests began.
func says(session string, state schemas.BranchState, chain []kvtier.Block, at int64) *schemas.BranchChange {
	return &schemas.BranchChange{
		Header: schemas.H(), Tenant: "t", Session: session, Branch: "main", State: state, AtNS: began + at,
		Tail: schemas.Extent{Key: chain[len(chain)-1].Key.String(), N: len(chain)},
	}
}

// there counts how many of a chain's blocks a client finds.
func there(c *Client, chain []kvtier.Block) int { return c.Match(keysOf(chain)) }

// sessions seals three chains, from the oldest to the newest, by real processes, and
// returns a client that looks at them.
func sessions(t *testing.T, dir string) (c *Client, old, mid, young []kvtier.Block) {
	t.Helper()
	for _, seed := range []string{"old", "mid", "young"} {
		p := startChild(t, "client", dir, "w-"+seed, 0)
		p.ask("put <nil>", "put %s 8", seed)
		p.kill()
	}
	return attach(t, dir, "look", func(o *Options) { o.Cache = -1 }), testChain("old", 8), testChain("mid", 8), testChain("young", 8)
}

// press seals blocks that nobody asks for until n have been evicted.
func press(t *testing.T, d *Daemon, c *Client, n int) {
	t.Helper()
	fill := testChain("fill", c.Capacity()+n)
	for _, b := range fill {
		if s := stats(t, d); s.Evictions >= uint64(n) {
			return
		}
		b.Parent, b.Index = kvtier.Key{0xee}, 0 // a leaf of its own
		mustPut(t, c, b)
	}
	t.Fatalf("%d blocks were evicted, want %d", stats(t, d).Evictions, n)
}

// TestBranchesChangeWhoGoes: what is said of branches decides who goes first, and LRU
// does not hear it.
func TestBranchesChangeWhoGoes(t *testing.T) {
	for _, order := range []string{OrderWeir, OrderLRU} {
		t.Run(order, func(t *testing.T) {
			dir := shortDir(t)
			d := startDaemonWith(t, Config{Dir: dir, Bytes: 1 << 20, Order: order})
			c, old, mid, young := sessions(t, dir)
			until(t, "known", func() bool { return stats(t, d).Sealed == 24 })
			d.Branch(says("old", schemas.BranchToolWaiting, old, 1))
			d.Branch(says("mid", schemas.BranchToolWaiting, mid, 2))
			d.Branch(says("young", schemas.BranchRunning, young, 3))
			d.Branch(says("young", schemas.BranchEnded, young, 4))
			press(t, d, c, 8)
			got := [3]int{there(c, old), there(c, mid), there(c, young)}
			want := [3]int{8, 8, 0}
			rule, class := RuleDead, kvtier.ClassDead
			if order == OrderLRU {
				want, rule, class = [3]int{0, 8, 8}, RuleLRU, kvtier.ClassIdle
			}
			if got != want {
				t.Errorf("of old, mid and young are left %v, want %v", got, want)
			}
			gone := young
			if order == OrderLRU {
				gone = old
			}
			if g, _, err := d.Why(gone[3].Key); g.Rule != rule || err != nil {
				t.Errorf("went by rule %q, %v, want %q", g.Rule, err, rule)
			}
			mustPut(t, c, gone...) // asked for again at once
			until(t, "counted", func() bool {
				s, err := d.Retention()
				return err == nil && s.Classes[class].Evictions >= 8 && s.Classes[class].Regrets == 8
			})
			checkTier(t, d)
		})
	}
}

// TestOrderAfterRestart: a daemon that was killed knows no branch; when they are said
// again its order is as before.
func TestOrderAfterRestart(t *testing.T) {
	dir := shortDir(t)
	first := startChild(t, "daemon", dir, "", 1<<20)
	c, old, mid, young := sessions(t, dir)
	first.kill()
	d := startDaemon(t, dir, 1<<20)
	until(t, "clients are back", func() bool { return stats(t, d).Sealed == 24 && stats(t, d).Clients == 1 })
	// As lineage repeats it: the states, at the times at which they began.
	d.Branch(says("old", schemas.BranchToolWaiting, old, 1))
	d.Branch(says("mid", schemas.BranchUserWaiting, mid, 2))
	gone := says("mid", schemas.BranchEnded, mid, 3)
	gone.Inferred, gone.Why = true, "decay" // nobody said so: idle, not dead
	d.Branch(gone)
	d.Branch(says("young", schemas.BranchUserWaiting, young, 3))
	press(t, d, c, 8)
	if got := [3]int{there(c, old), there(c, mid), there(c, young)}; got != [3]int{8, 0, 8} {
		t.Errorf("of old, mid and young are left %v: mid, which no branch holds, was to go", got)
	}
	checkTier(t, d)
}

// TestBlocks: the daemon says of blocks who holds them and how many go before them.
func TestBlocks(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c, old, mid, young := sessions(t, dir)
	until(t, "known", func() bool { return stats(t, d).Sealed == 24 })
	d.Branch(says("old", schemas.BranchToolWaiting, old, 1))
	d.Branch(says("young", schemas.BranchRunning, young, 3))
	d.Branch(says("young", schemas.BranchSuperseded, young, 4))
	infos, err := d.Blocks([]kvtier.Key{old[3].Key, old[7].Key, mid[7].Key, young[7].Key, {0xdd}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		class  kvtier.Class
		place  int
		leaf   bool
		holder string
	}{
		{kvtier.ClassWaiting, -1, false, "old"},
		{kvtier.ClassWaiting, 2, true, "old"},
		{kvtier.ClassIdle, 1, true, ""},
		{kvtier.ClassDead, 0, true, ""},
	} {
		got, holder := infos[i], ""
		if len(got.Holders) > 0 {
			holder = got.Holders[0].Session
		}
		if !got.There || got.Class != want.class || got.Place != want.place || got.Leaf != want.leaf || holder != want.holder || !got.Whole {
			t.Errorf("block %d: %+v, want %+v", i, got, want)
		}
	}
	if f := infos[3].First; f == nil || f.Session != "young" || f.Lost != "superseded" || f.LostNS != began+4 {
		t.Errorf("the dead block was of %+v", f)
	}
	if infos[4].There || infos[4].Place != -1 {
		t.Errorf("a block that was never there: %+v", infos[4])
	}
	bs, err := d.Branches("t", "old")
	if err != nil || len(bs) != 1 || bs[0].Resident != 8 || bs[0].Tail != old[7].Key.String() {
		t.Errorf("branches %+v, %v", bs, err)
	}
	c.Release(c.Lease(keysOf(old)))
}

// TestTenantShare: with two tenants, what waits of one pins half of the memory at most.
func TestTenantShare(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Cache = -1 })
	n := c.Capacity() * 3 / 10
	a, b, u := testChain("a", n), testChain("b", n), testChain("u", 4)
	mustPut(t, c, a...)
	mustPut(t, c, b...)
	mustPut(t, c, u...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 2*n+4 })
	d.Branch(says("a", schemas.BranchToolWaiting, a, 1))
	d.Branch(says("b", schemas.BranchToolWaiting, b, 2))
	other := says("u", schemas.BranchToolWaiting, u, 3)
	other.Tenant = "u"
	d.Branch(other)
	until(t, "one of the first tenant's branches is idle", func() bool {
		infos, err := d.Blocks([]kvtier.Key{a[n-1].Key, b[n-1].Key, u[3].Key})
		if err != nil {
			t.Fatal(err)
		}
		idle := 0
		for _, i := range infos[:2] {
			if i.Class == kvtier.ClassIdle {
				idle++
			}
		}
		return idle == 1 && infos[2].Class == kvtier.ClassWaiting
	})
	checkTier(t, d)
}

// TestFirst: a client hears which of several contexts would go first, as the daemon's
// order says.
func TestFirst(t *testing.T) {
	dir := shortDir(t)
	d := startDaemonWith(t, Config{Dir: dir, Bytes: 1 << 20})
	c, old, mid, young := sessions(t, dir)
	until(t, "known", func() bool { return stats(t, d).Sealed == 24 })
	tails := []kvtier.Key{old[7].Key, mid[7].Key, young[7].Key}
	d.Branch(says("old", schemas.BranchToolWaiting, old, 1))
	d.Branch(says("mid", schemas.BranchRunning, mid, 2))
	d.Branch(says("mid", schemas.BranchEnded, mid, 3))
	d.Branch(says("young", schemas.BranchToolWaiting, young, 4))
	until(t, "the ended one goes first", func() bool { return c.First(tails) == 1 })
	gone := kvtier.Key{1, 2, 3}
	if got := c.First(append(tails, gone)); got != 3 {
		t.Errorf("%d goes first, want the one that is not there", got)
	}
	if c.First(nil) != -1 {
		t.Error("one of none goes first")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if got := c.First(tails); got != -1 {
		t.Errorf("without a daemon %d goes first", got)
	}
}
