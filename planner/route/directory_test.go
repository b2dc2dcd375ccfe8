package route

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/schemas"
)

// modelNode is a tier node as it is: how many leading blocks of each chain it holds,
// and what it says of it on a network that loses and repeats.
type modelNode struct {
	id         string
	epoch, seq uint64
	held       map[string]int
}

func (n *modelNode) notice() *schemas.KVNotice {
	n.seq++
	return &schemas.KVNotice{Header: schemas.H(), Node: n.id, Epoch: n.epoch, Seq: n.seq, Medium: schemas.MediumHost, Peer: n.id + ":1"}
}

// list is all that it holds, as extents that end at stops and at leaves.
func (n *modelNode) list() *schemas.SyncReply {
	r := &schemas.SyncReply{Header: schemas.H(), Node: n.id, Epoch: n.epoch, Seq: n.seq, Peer: n.id + ":1"}
	for _, chain := range chainNames {
		r.Extents = append(r.Extents, chains(fmt.Sprintf("%s/%d", chain, n.held[chain]))...)
	}
	return r
}

var chainNames = []string{"u", "v:10+w", "v:10+x"} // the last two share 10 blocks

// TestDirectory: whatever notices are lost or come twice, once the nodes' answers are
// there the directory says of every chain what each node holds, to the next stop.
func TestDirectory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := New(Config{Cell: "c0"})
		now := 1000 * second
		ops := map[string]uint64{}
		step := func(m schemas.Msg) {
			now += second / 100
			for _, o := range r.Step(now, &m, nil) {
				if o.Kind == schemas.KindLoad {
					continue
				}
				if o.Kind != schemas.KindOp {
					rt.Fatalf("the router sent kind %d", o.Kind)
				}
				if ops[o.Op.Sync.Node] != 0 {
					rt.Fatalf("%s is asked twice at once", o.Op.Sync.Node)
				}
				ops[o.Op.Sync.Node] = o.Op.ID
			}
		}
		nodes := []*modelNode{{id: "a", epoch: 1, held: map[string]int{}}, {id: "b", epoch: 7, held: map[string]int{}}}
		answer := func(n *modelNode) {
			if id := ops[n.id]; id != 0 {
				delete(ops, n.id)
				step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: id, Sync: n.list()}})
			}
		}
		var onWay *schemas.OpDone // an answer that was made and has not arrived
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			n := nodes[rapid.IntRange(0, 1).Draw(rt, "node")]
			switch action := rapid.IntRange(0, 7).Draw(rt, "action"); action {
			case 0, 1, 2, 3: // it stores or evicts, and the notice may be lost or come twice
				m := n.notice()
				change(n, m, rapid.SampledFrom(chainNames).Draw(rt, "chain"), rapid.IntRange(0, 30).Draw(rt, "blocks"))
				for range rapid.SampledFrom([]int{1, 1, 1, 0, 2}).Draw(rt, "copies") {
					step(schemas.Msg{Kind: schemas.KindKV, KV: m})
				}
			case 4:
				n.epoch, n.seq = n.epoch+1, 0 // the memory outlives its process
			case 5:
				answer(n)
			case 6:
				if id := ops["a"]; id != 0 {
					onWay = &schemas.OpDone{ID: id, Sync: nodes[0].list()}
				}
			case 7:
				if onWay != nil && ops["a"] == onWay.ID {
					delete(ops, "a")
					step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: onWay})
				}
			}
		}
		for _, n := range nodes { // a last notice shows what was lost
			step(schemas.Msg{Kind: schemas.KindKV, KV: n.notice()})
			for range 5 {
				now += 60 * second
				step(schemas.Msg{Kind: schemas.KindTick})
				answer(n)
			}
		}
		for _, n := range nodes {
			for _, chain := range chainNames {
				p := &schemas.Prompt{Path: chains(chain + "/40")}
				at := slices.IndexFunc(r.dir.find(endsOf(p), nil), func(s share) bool { return s.node.id == n.id })
				got, want := 0, 0
				if at >= 0 {
					got = r.dir.find(endsOf(p), nil)[at].blocks
				}
				for s := schemas.NextStop(0); s <= n.held[chain]; s = schemas.NextStop(s) {
					want = s
				}
				if got != want {
					rt.Fatalf("%s holds %d blocks of %s, the directory says %d, want %d", n.id, n.held[chain], chain, got, want)
				}
			}
		}
		if len(r.dir.ends) != len(r.dir.ring) {
			rt.Fatalf("%d ends, %d in the ring", len(r.dir.ends), len(r.dir.ring))
		}
	})
}

// change makes a node hold so many blocks of a chain, and says so in m. Chains that
// share blocks lose them together.
func change(n *modelNode, m *schemas.KVNotice, chain string, blocks int) {
	have := n.held[chain]
	n.held[chain] = blocks
	if blocks > have {
		m.Stored = schemas.CutAtStops(have, blocks, func(end int) string { return keyIn(chain, end) })
	}
	for _, other := range chainNames[1:] {
		if other == chain || chain == "u" {
			continue
		}
		switch shared := min(blocks, 10); {
		case blocks < 10 && n.held[other] > blocks: // what hung on it was evicted before
			for b := n.held[other]; b > blocks; b-- {
				m.Evicted = append(m.Evicted, schemas.Extent{Key: keyIn(other, b), From: b - 1, N: 1})
			}
			n.held[other] = blocks
		case n.held[other] < shared:
			n.held[other] = shared
		}
	}
	for b := have; b > blocks; b-- {
		m.Evicted = append(m.Evicted, schemas.Extent{Key: keyIn(chain, b), From: b - 1, N: 1})
	}
}

// TestDirectoryBounds: the ends that were used last are kept, and no more than allowed.
func TestDirectoryBounds(t *testing.T) {
	cfg := Config{MaxEnds: 100, MaxNodes: 2}
	cfg.defaults()
	d := newDirectory(&cfg)
	if d.node("a") == nil || d.node("b") == nil || d.node("c") != nil || d.node("") != nil {
		t.Fatalf("%d nodes", len(d.list))
	}
	hot := &schemas.Prompt{Path: chains("hot/8")}
	d.learn(d.node("a"), endsOf(hot))
	for i := range 1000 {
		d.learn(d.node("b"), endsOf(&schemas.Prompt{Path: chains(fmt.Sprintf("c%d/3", i))}))
		if s := d.find(endsOf(hot), nil); len(s) != 1 || s[0].blocks != 8 || s[0].node.id != "a" {
			t.Fatalf("after %d other prompts: %+v", i, s)
		}
		if len(d.ends) > 100 || len(d.ring) != len(d.ends) {
			t.Fatalf("%d ends, %d in the ring, at most 100", len(d.ends), len(d.ring))
		}
	}
	d.learn(d.node("a"), endsOf(&schemas.Prompt{Path: []schemas.Extent{{Key: "not hex", N: 1}, {Key: "00", N: 1}}}))
	d.drop(d.node("a"), "neither", onHost)
}

// TestDirectoryMedia: a block that moved to disk is still there, until it leaves that
// too.
func TestDirectoryMedia(t *testing.T) {
	r := New(Config{Cell: "c0"})
	x := chains("x/4")
	p := &schemas.Prompt{Path: x}
	seq := uint64(0)
	tell := func(m schemas.KVNotice) []share {
		seq++
		m.Header, m.Node, m.Epoch, m.Seq = schemas.H(), "a", 1, seq
		r.Step(second, &schemas.Msg{Kind: schemas.KindKV, KV: &m}, nil)
		return r.dir.find(endsOf(p), nil)
	}
	if s := tell(schemas.KVNotice{Medium: schemas.MediumHost, Stored: x}); len(s) != 1 || s[0].blocks != 4 {
		t.Fatalf("stored: %+v", s)
	}
	if s := tell(schemas.KVNotice{Medium: schemas.MediumDisk, Stored: x}); len(s) != 1 {
		t.Fatalf("on disk too: %+v", s)
	}
	if s := tell(schemas.KVNotice{Medium: schemas.MediumHost, Evicted: x}); len(s) != 1 || s[0].blocks != 4 {
		t.Fatalf("on disk: %+v", s)
	}
	if s := tell(schemas.KVNotice{Medium: schemas.MediumHost, Moved: x}); len(s) != 1 {
		t.Fatalf("back: %+v", s)
	}
	if s := tell(schemas.KVNotice{Medium: schemas.MediumHost, Evicted: x}); len(s) != 0 || len(r.dir.ends) != 0 {
		t.Fatalf("gone: %+v", s)
	}
}

// TestDiskInLists: what a node's list has on disk is found until a notice says that it
// left the disk, and not when it left memory.
func TestDiskInLists(t *testing.T) {
	r := New(Config{Cell: "c0"})
	memory, disk := chains("m/4"), chains("d/6")
	var op uint64
	step := func(m schemas.Msg) {
		for _, o := range r.Step(second, &m, nil) {
			if o.Kind == schemas.KindOp && o.Op.Sync != nil {
				op = o.Op.ID
			}
		}
	}
	seq := uint64(0)
	tell := func(m schemas.KVNotice) {
		seq++
		m.Header, m.Node, m.Epoch, m.Seq = schemas.H(), "a", 1, seq
		step(schemas.Msg{Kind: schemas.KindKV, KV: &m})
	}
	blocks := func(path []schemas.Extent) int {
		n := 0
		for _, s := range r.dir.find(endsOf(&schemas.Prompt{Path: path}), nil) {
			n += s.blocks
		}
		return n
	}
	tell(schemas.KVNotice{Medium: schemas.MediumHost})
	step(schemas.Msg{Kind: schemas.KindTick})
	step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: op, Sync: &schemas.SyncReply{
		Header: schemas.H(), Node: "a", Epoch: 1, Seq: seq, Extents: memory, Disk: disk,
	}}})
	if m, d := blocks(memory), blocks(disk); m != 4 || d != 6 {
		t.Fatalf("%d blocks in memory, %d on disk, want 4 and 6", m, d)
	}
	tell(schemas.KVNotice{Medium: schemas.MediumHost, Evicted: append(slices.Clone(memory), disk...)})
	if m, d := blocks(memory), blocks(disk); m != 0 || d != 6 {
		t.Errorf("after memory went: %d blocks in memory, %d on disk, want 0 and 6", m, d)
	}
	tell(schemas.KVNotice{Medium: schemas.MediumDisk, Evicted: disk})
	if d := blocks(disk); d != 0 {
		t.Errorf("%d blocks are left on a disk that gave them up", d)
	}
}

// BenchmarkFind is one look at the directory for a prompt of 262,144 tokens that 8
// nodes hold parts of.
func BenchmarkFind(b *testing.B) {
	r := New(Config{})
	for i := range 8 {
		r.dir.learn(r.dir.node(fmt.Sprintf("n%d", i)), endsOf(&schemas.Prompt{Path: chains(fmt.Sprintf("x/%d", 100*i))}))
	}
	p := &schemas.Prompt{Path: chains("x/4096")}
	var dst []share
	b.ReportAllocs()
	for b.Loop() {
		dst = r.dir.find(endsOf(p), dst[:0])
	}
}
