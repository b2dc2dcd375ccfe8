package hostmem

import (
	"crypto/sha256"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/kvtier"
)

// TestWhy: each way in which a block goes is remembered with its rule and time, also
// over the socket; a block that is there, or was never there, is told from those.
func TestWhy(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Cache = -1 })
	expect := func(what string, k kvtier.Key, rule string, ok bool) {
		t.Helper()
		g, found := c.Why(k)
		if found != ok || g.Rule != rule || (g.AtNS != 0) != (ok && rule != "" && rule != RuleForgotten) {
			t.Errorf("%s: %+v, %v; want rule %q, %v", what, g, found, rule, ok)
		}
	}
	a, b := testChain("a", 3), testChain("b", 2)
	mustPut(t, c, a...)
	mustPut(t, c, b...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 5 })
	expect("a block that is there", a[0].Key, "", false)
	expect("a block that was never there", testChain("x", 1)[0].Key, "", true)

	refs := c.Lease(keysOf(a[:1]))
	d.pools[0].bytes(refs[0].id)[0] ^= 1
	if c.Verify(refs[0]) {
		t.Fatal("a flipped bit is not seen")
	}
	c.Release(refs)
	until(t, "removed", func() bool { return stats(t, d).Sealed == 4 })
	expect("a flipped bit", a[0].Key, RuleChecksum, true)

	if n, err := c.Erase(t.Context(), keysOf(b[1:])); n != 2 || err != nil {
		t.Fatalf("erased %d, %v", n, err)
	}
	expect("an erased block", b[0].Key, RuleErased, true)

	fill := testChain("fill", c.Capacity())
	mustPut(t, c, fill[:c.Capacity()]...)
	expect("the leaf used longest ago", a[2].Key, RuleIdle, true)
	until(t, "known", func() bool { return stats(t, d).Reserved == 0 })
	if _, err := d.Clear(); err != nil {
		t.Fatal(err)
	}
	expect("a cleared block", fill[0].Key, RuleCleared, true)
	mustPut(t, c, a[0])
	until(t, "known", func() bool { return stats(t, d).Sealed == 1 })
	expect("a block that is there again", a[0].Key, "", false)

	// A daemon that takes over does not know what went before.
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	expect("no daemon", a[1].Key, "", false)
	d = startDaemon(t, dir, 1<<20)
	until(t, "connected", c.Connected)
	expect("before this daemon", a[1].Key, RuleForgotten, true)
	checkTier(t, d)
}

// TestGraves: the ring remembers the newest keys and no more.
func TestGraves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 8).Draw(t, "most")
		g := newGraves(most, true)
		var all []kvtier.Key
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 12), 0, 40).Draw(t, "keys") {
			k := kvtier.Key(sha256.Sum256([]byte{byte(n)}))
			g.add(grave{key: k, at: int64(i)})
			all = append(all, k)
		}
		newest := map[kvtier.Key]int64{}
		for i := max(0, len(all)-most); i < len(all); i++ {
			newest[all[i]] = int64(i)
		}
		for n := range 13 {
			k := kvtier.Key(sha256.Sum256([]byte{byte(n)}))
			at, want := newest[k]
			e := g.find(k)
			if (e != nil) != want || e != nil && (e.key != k || e.at != at) {
				t.Fatalf("key %d: %+v, want %v at %d", n, e, want, at)
			}
		}
		if g.whole != (len(all) <= most) || len(g.at) != len(newest) {
			t.Fatalf("whole %v after %d of %d; %d keys, want %d", g.whole, len(all), most, len(g.at), len(newest))
		}
	})
}

// TestErase: blocks of a chain are removed and overwritten, with what follows them;
// those that another chain needs stay, and so do leased ones.
func TestErase(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Cache = -1 })
	a := testChain("a", 6)
	fork := childOf(a[2], 100) // another chain's fourth block
	tail := childOf(a[5], 101) // generated behind the last key that is known
	mustPut(t, c, a...)
	mustPut(t, c, fork, tail)
	until(t, "known", func() bool { return stats(t, d).Sealed == 8 })
	slots := map[int]uint32{}
	for i := range a {
		id, _, ok := d.pools[0].find(&a[i].Key)
		if !ok {
			t.Fatal("a block is not found")
		}
		slots[i] = id
	}
	refs := c.Lease(keysOf(a))
	n, err := c.Erase(t.Context(), keysOf(a[5:6]))
	if n != 1 || !errors.Is(err, ErrInUse) { // what follows the leased ones goes
		t.Fatalf("erased %d while leased: %v", n, err)
	}
	if len(refs) != 6 || !c.Verify(refs[5]) {
		t.Error("a leased block was changed")
	}
	c.Release(refs)
	if n, err := d.Erase(keysOf(a[5:6])); n != 3 || err != nil {
		t.Fatalf("erased %d: %v", n, err)
	}
	for i, id := range slots {
		zero := true
		for _, v := range d.pools[0].bytes(id) {
			zero = zero && v == 0
		}
		if zero != (i > 2) {
			t.Errorf("block %d: overwritten is %v", i, zero)
		}
	}
	if m := c.Match(keysOf(append(append([]kvtier.Block{}, a[:3]...), fork))); m != 4 {
		t.Errorf("%d of the other chain's 4 blocks are left", m)
	}
	checkTier(t, d)
}

// TestEraseEvicted: what was evicted before is overwritten too, and found through
// what the daemon remembers.
func TestEraseEvicted(t *testing.T) {
	dir := shortDir(t)
	d := startDaemon(t, dir, 1<<20)
	c := attach(t, dir, "w", func(o *Options) { o.Cache = -1 })
	a := testChain("a", 4)
	mustPut(t, c, a...)
	until(t, "known", func() bool { return stats(t, d).Sealed == 4 })
	p := d.pools[0]
	if err := d.call(func() {
		for range 2 {
			p.evict(1<<62, RuleLRU)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n := c.Match(keysOf(a)); n != 2 {
		t.Fatalf("%d blocks are left, want 2", n)
	}
	if n, err := d.Erase(keysOf(a[3:])); n != 2 || err != nil {
		t.Fatalf("erased %d: %v", n, err)
	}
	for i := range p.arena.slots {
		for _, v := range p.bytes(uint32(i)) {
			if v != 0 {
				t.Fatalf("slot %d holds bytes of an erased block", i)
			}
		}
	}
	if g, ok, err := d.Why(a[3].Key); !ok || err != nil || g.Rule != RuleErased {
		t.Errorf("%+v, %v, %v", g, ok, err)
	}
	if n, err := d.Erase([]kvtier.Key{{}, a[0].Key}); n != 0 || err != nil {
		t.Errorf("erased %d again: %v", n, err)
	}
	checkTier(t, d)
}

// TestEraseUnfilled: bytes of an evicted block stay in its slot while that is reserved and
// given back unfilled, and over a restart of the daemon. They are overwritten too.
func TestEraseUnfilled(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reserve func(*Client) // reserves the slot of the evicted block
		restart bool
	}{
		{name: "given back", reserve: func(c *Client) { c.Abandon(reserveAll(t, c)) }},
		{name: "writer ended", reserve: func(c *Client) { reserveAll(t, c); _ = c.Close() }},
		{name: "filled in part", reserve: func(c *Client) {
			all := reserveAll(t, c)
			for _, s := range all {
				copy(s.Data(), "something of another turn")
			}
			c.Abandon(all)
		}},
		{name: "daemon ended", restart: true},
		{name: "given back, daemon ended", reserve: func(c *Client) { c.Abandon(reserveAll(t, c)) }, restart: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := shortDir(t)
			d := startDaemon(t, dir, 1<<20)
			c := attach(t, dir, "w", func(o *Options) { o.Cache = -1 })
			a := testChain("a", 4)
			mustPut(t, c, a...)
			until(t, "known", func() bool { return stats(t, d).Sealed == 4 })
			if err := d.call(func() {
				for range 4 {
					d.pools[0].evict(1<<62, RuleLRU)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if tc.reserve != nil {
				tc.reserve(c)
				until(t, "given back", func() bool { return stats(t, d).Reserved == 0 })
			}
			if tc.restart {
				_ = d.Close()
				d = startDaemon(t, dir, 1<<20)
			}
			if _, err := d.Erase(keysOf(a[3:])); err != nil {
				t.Fatal(err)
			}
			p := d.pools[0]
			for i := range p.arena.slots {
				for _, v := range p.bytes(uint32(i)) {
					if v != 0 {
						t.Fatalf("slot %d holds bytes of an erased block", i)
					}
				}
			}
			checkTier(t, d)
		})
	}
}

func reserveAll(t *testing.T, c *Client) []Slot {
	t.Helper()
	slots, err := c.Reserve(t.Context(), c.Capacity())
	if err != nil {
		t.Fatal(err)
	}
	return slots
}

func childOf(b kvtier.Block, token int32) kvtier.Block {
	k, err := kvtier.Chain(b.Key, b.Index+1, []int32{token}, nil)
	if err != nil {
		panic(err)
	}
	return kvtier.Block{Key: k, Parent: b.Key, Index: b.Index + 1}
}
