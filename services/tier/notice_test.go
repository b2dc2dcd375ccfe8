package tier

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// TestPages: the pages of one list belong together, whatever changes between them.
func TestPages(t *testing.T) {
	all := make([]schemas.Extent, 2*syncPage+1)
	n := &notifier{list: list{extents: all, seq: 9, at: time.Now()}}
	if l, err := n.read(2); err != nil || l.seq != 9 || len(l.extents) != len(all) {
		t.Errorf("page 2 is of another list: behind notice %d, %d extents, %v", l.seq, len(l.extents), err)
	}
}
