package tier

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
)

// sealChain seals n blocks of a chain and returns their keys.
func sealChain(t *testing.T, c *hostmem.Client, token int32, n int) (keys []kvtier.Key) {
	t.Helper()
	parent := kvtier.Key{1}
	for i := range n {
		k, err := kvtier.Chain(parent, i, []int32{token}, nil)
		if err != nil {
			t.Fatal(err)
		}
		slots, err := c.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Seal(slots[0], kvtier.Block{Key: k, Parent: parent, Index: i}); err != nil {
			t.Fatal(err)
		}
		keys, parent = append(keys, k), k
	}
	return keys
}

// TestNotices: what is stored comes in notices without a gap, each extent ends at a
// stop or where the notice ends, and the list of all that is held says the same.
func TestNotices(t *testing.T) {
	nc, c := node(t)
	sub, err := nc.SubscribeSync(schemas.KVSubject("c0", "n7"))
	if err != nil {
		t.Fatal(err)
	}
	keys := sealChain(t, c, 7, 21)
	held := map[string]int{}           // ends, with the number of blocks up to them
	seq, epoch := uint64(1), uint64(0) // the first one said that the node is there
	for held[keys[20].String()] == 0 {
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatalf("after notice %d: %v", seq, err)
		}
		var n schemas.KVNotice
		if err := schemas.Decode(m.Data, &n); err != nil {
			t.Fatal(err)
		}
		if seq++; n.Seq != seq || n.Node != "n7" || epoch != 0 && n.Epoch != epoch {
			t.Fatalf("notice %d of epoch %d, want %d of %d", n.Seq, n.Epoch, seq, epoch)
		}
		epoch = n.Epoch
		for _, e := range n.Stored {
			held[e.Key] = e.From + e.N
		}
	}
	for n := schemas.NextStop(0); n <= 21; n = schemas.NextStop(n) {
		if held[keys[n-1].String()] != n {
			t.Errorf("no extent ends behind block %d", n)
		}
	}
	rep := ask(t, nc, 0)
	want := schemas.CutAtStops(0, 21, func(end int) string { return keys[end-1].String() })
	if diff := cmp.Diff(want, rep.Extents); diff != "" || rep.More || rep.Seq != seq || rep.Epoch != epoch {
		t.Errorf("list of epoch %d behind notice %d, more %v (-want +got):\n%s", rep.Epoch, rep.Seq, rep.More, diff)
	}
	if _, err := Erase(t.Context(), nc, "n7", []string{keys[20].String()}); err != nil {
		t.Fatal(err)
	}
	evicted := map[string]bool{}
	for len(evicted) < 21 {
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatalf("%d blocks evicted: %v", len(evicted), err)
		}
		var n schemas.KVNotice
		if err := schemas.Decode(m.Data, &n); err != nil {
			t.Fatal(err)
		}
		for _, e := range n.Evicted {
			evicted[e.Key] = true
		}
	}
	if rep := ask(t, nc, 0); len(rep.Extents) != 0 {
		t.Errorf("%d extents are left", len(rep.Extents))
	}
}

func ask(t *testing.T, nc *nats.Conn, page int) *schemas.SyncReply {
	t.Helper()
	body, err := schemas.Encode(&schemas.SyncRequest{Header: schemas.H(), Page: page})
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.Request(schemas.SyncSubject("n7"), body, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	rep := &schemas.SyncReply{}
	if err := schemas.Decode(m.Data, rep); err != nil {
		t.Fatal(err)
	}
	return rep
}

// TestPages: the pages of one list belong together, whatever changes between them, and
// have each extent once: those in memory, then those on disk alone.
func TestPages(t *testing.T) {
	named := func(n, from int) []schemas.Extent {
		out := make([]schemas.Extent, n)
		for i := range out {
			out[i].From = from + i
		}
		return out
	}
	for _, c := range []struct{ memory, disk, pages int }{
		{0, 0, 1}, {3, 0, 1}, {0, 3, 1}, {syncPage, 0, 1}, {syncPage - 1, 2, 2}, {syncPage + 1, syncPage, 3}, {2*syncPage + 1, 0, 3}, {0, 2 * syncPage, 2},
	} {
		n := &notifier{list: list{extents: named(c.memory, 0), disk: named(c.disk, c.memory), seq: 9, at: time.Now()}}
		var memory, disk []schemas.Extent
		for page := 0; page < c.pages; page++ {
			l := n.list
			if page > 0 {
				var err error
				if l, err = n.read(page); err != nil || l.seq != 9 {
					t.Fatalf("%+v: page %d is of another list: behind notice %d, %v", c, page, l.seq, err)
				}
			}
			m, d, more := l.page(page)
			if more != (page < c.pages-1) || len(m)+len(d) > syncPage {
				t.Errorf("%+v: page %d has %d and %d extents, more %v", c, page, len(m), len(d), more)
			}
			memory, disk = append(memory, m...), append(disk, d...)
		}
		if diff := cmp.Diff(named(c.memory+c.disk, 0), append(memory, disk...), cmpopts.EquateEmpty()); diff != "" || len(disk) != c.disk {
			t.Errorf("%+v: %d on disk (-want +got):\n%s", c, len(disk), diff)
		}
	}
	if m, d, more := (&list{extents: named(1, 0)}).page(math.MaxInt); len(m)+len(d) > 0 || more {
		t.Errorf("a page behind the end has %d and %d extents, more %v", len(m), len(d), more)
	}
}

// TestDiskIsListed: who asks for all that a node holds hears of what lies on disk alone,
// apart from what is in memory.
func TestDiskIsListed(t *testing.T) {
	nc, c := node(t, func(cfg *Config) { cfg.Disk, cfg.DiskBytes = t.TempDir(), 64<<20 })
	sealed := map[string]bool{}
	for token := int32(1); token <= 1000; token++ {
		for _, k := range sealChain(t, c, token, 20) {
			sealed[k.String()] = true
		}
		rep := ask(t, nc, 0)
		if rep.More || len(rep.Extents) == 0 {
			t.Fatalf("%d extents in memory, %d on disk, more %v", len(rep.Extents), len(rep.Disk), rep.More)
		}
		for _, d := range rep.Disk {
			if !sealed[d.Key] || d.N < 1 || slices.ContainsFunc(rep.Extents, func(e schemas.Extent) bool { return e.Key == d.Key }) {
				t.Fatalf("on disk alone: %+v; sealed %v", d, sealed[d.Key])
			}
		}
		if len(rep.Disk) > 0 {
			return
		}
	}
	t.Fatal("nothing came to the disk")
}
