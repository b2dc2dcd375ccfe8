package executor

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/kvtier/peer"
	"github.com/weir-dev/weir/schemas"
)

// hosts are two memories; the second one's executor fetches from the first.
type hosts struct {
	far, near arena
	srv       *peer.Server
	client    *peer.Client
}

func newHosts(t *testing.T, blockBytes int) hosts {
	t.Helper()
	h := hosts{far: newArena(t, blockBytes), near: newArena(t, blockBytes)}
	var err error
	if h.srv, err = peer.Serve(peer.ServerConfig{Dir: h.far.dir}); err != nil {
		t.Fatal(err)
	}
	h.client = peer.NewClient(h.near.a, peer.Options{Timeout: 20 * time.Second, ReadTimeout: 20 * time.Second, DialTimeout: 20 * time.Second})
	t.Cleanup(func() { _, _ = h.client.Close(), h.srv.Close() })
	return h
}

func (h hosts) brought() int { return h.client.Stats().Brought }

func (h hosts) views() (worker.Tier, worker.Tier) {
	return &tier{mem: h.far.a}, &fetching{tier: tier{mem: h.near.a}, hosts: h}
}

// fetching looks for every block at the other host first.
type fetching struct {
	tier
	hosts hosts
}

func (f *fetching) fetch(ks []worker.Key) {
	if _, err := f.hosts.client.Fetch(context.Background(), f.hosts.srv.Addr(), asKeys(ks)); err != nil {
		panic(err) // it would hide whether a block may be shared
	}
}

func (f *fetching) Lease(ks []worker.Key) []worker.Ref {
	f.fetch(ks)
	return f.tier.Lease(ks)
}

func (f *fetching) Has(k worker.Key) bool {
	f.fetch([]worker.Key{k})
	return f.tier.Has(k)
}

// prompted is a turn of n blocks and the key of each.
func prompted(t *testing.T, seed string, n int) (*schemas.Ready, []kvtier.Key) {
	t.Helper()
	tokens := make(schemas.Tokens, n*gpuexec.BlockTokens+1)
	for i := range tokens {
		tokens[i] = int32(i % 251)
	}
	r := &schemas.Ready{
		Header: schemas.H(), Tenant: "t", Session: "s", Turn: "u", Branch: "main", Job: schemas.JobID("t", "s", "u"), Pool: "p",
		Prompt: schemas.Prompt{N: len(tokens), Tail: tokens}, MaxNew: 1,
		Keys: schemas.KeySpec{Salt: seed, Model: "m", Vocab: "v"},
	}
	root, err := keys{}.Root(r.Keys, testFormat)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kvtier.NewChainer(root, gpuexec.BlockTokens, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, c.Append(nil, tokens...)
}

var testFormat = schemas.KVFormat{Engine: "null", Version: "1", Numerics: "n", Layout: 1}

func sealChain(t *testing.T, mem *hostmem.Client, r *schemas.Ready, ks []kvtier.Key, only func(i int) bool) {
	t.Helper()
	parent, err := keys{}.Root(r.Keys, testFormat)
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range ks {
		if only(i) {
			slots, err := mem.Reserve(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			copy(slots[0].Data(), k[:])
			if _, err := mem.Seal(slots[0], kvtier.Block{Key: k, Parent: parent, Index: i}); err != nil {
				t.Fatal(err)
			}
		}
		parent = k
	}
}

// extentsOf cuts a chain into extents of size blocks.
func extentsOf(ks []kvtier.Key, size int) (out []schemas.Extent) {
	for i := 0; i < len(ks); i += size {
		n := min(size, len(ks)-i)
		out = append(out, schemas.Extent{Key: ks[i+n-1].String(), From: i, N: n})
	}
	return out
}

func at(addr string, es []schemas.Extent) (out []schemas.Source) {
	for _, e := range es {
		out = append(out, schemas.Source{Node: "n1", Peer: addr, Extent: e})
	}
	return out
}

// headless takes away the prompt's tokens before block head, as lineage does for what is
// known to be computed.
func headless(r *schemas.Ready, ks []kvtier.Key, head, size int) *schemas.Ready {
	c := *r
	c.Prompt.TailFrom = head * gpuexec.BlockTokens
	c.Prompt.Tail = c.Prompt.Tail[c.Prompt.TailFrom:]
	c.Prompt.Path = extentsOf(ks[:head], size)
	return &c
}

func TestBring(t *testing.T) {
	const n = 24
	all := func(int) bool { return true }
	for name, q := range map[string]struct {
		far, near func(i int) bool // which blocks each host holds
		head      int              // blocks whose tokens are not in the job
		withHead  bool             // but are in the operation
		cut       int              // blocks in one source
		sources   func(es []schemas.Extent) []schemas.Extent
		want      int // leading blocks in memory afterwards
		brought   int
	}{
		"all":                          {far: all, cut: 8, want: n, brought: n},
		"tokens unknown":               {far: all, head: 20, cut: 8, want: n, brought: n},
		"tokens unknown, one source":   {far: all, head: 20, cut: 24, want: n, brought: n},
		"tokens asked for":             {far: all, head: 20, withHead: true, cut: 8, want: n, brought: n},
		"the beginning is here":        {far: all, near: func(i int) bool { return i < 10 }, head: 20, cut: 8, want: n, brought: 14},
		"a hole is here":               {far: all, near: func(i int) bool { return i != 4 && i != 9 }, cut: 8, want: n, brought: 2},
		"one is missing: not worth it": {far: all, near: func(i int) bool { return i != 9 }, cut: 8, want: 9},
		"all is here":                  {far: all, near: all, cut: 8, want: n},
		"its end is gone":              {far: func(i int) bool { return i < 21 }, head: 20, cut: 8, want: 16, brought: 16},
		"its end is gone, tokens here": {far: func(i int) bool { return i < 21 }, cut: 8, want: 21, brought: 21},
		"it has gone":                  {far: func(int) bool { return false }, head: 20, cut: 8},
		"a gap before what it has": {
			far: all, cut: 8, sources: func(es []schemas.Extent) []schemas.Extent { return es[1:] },
		},
		"what is named is out of bounds": {far: all, cut: 8, sources: func([]schemas.Extent) []schemas.Extent {
			return []schemas.Extent{{From: -1, N: 3}, {N: -1}, {N: 1 << 30}, {From: 1 << 40, N: 1}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHosts(t, 4096)
			r, ks := prompted(t, "salt", n)
			sealChain(t, h.far.a, r, ks, q.far)
			if q.near != nil {
				sealChain(t, h.near.a, r, ks, q.near)
			}
			es := extentsOf(ks, q.cut)
			if q.sources != nil {
				es = q.sources(es)
			}
			op := &schemas.BringOp{Ready: r, Sources: at(h.srv.Addr(), es)}
			if q.head > 0 {
				op.Ready = headless(r, ks, q.head, 8)
			}
			if q.withHead {
				op.Head = r.Prompt.Tail[:op.Ready.Prompt.TailFrom]
			}
			b := newBringer(h.near.a, testFormat, "", slog.New(slog.DiscardHandler))
			defer b.close()
			if got := b.bring(op); got != q.brought {
				t.Errorf("%d blocks came, want %d", got, q.brought)
			}
			if got := h.near.a.Match(ks); got != q.want {
				t.Errorf("%d leading blocks are here, want %d", got, q.want)
			}
		})
	}
}

// A node that names other blocks than asked, here those of another tenant with equal
// tokens, is not followed.
func TestBringOther(t *testing.T) {
	h := newHosts(t, 4096)
	r, ks := prompted(t, "mine", 24)
	other, theirs := prompted(t, "theirs", 24)
	sealChain(t, h.far.a, other, theirs, func(int) bool { return true })
	b := newBringer(h.near.a, testFormat, "", slog.New(slog.DiscardHandler))
	defer b.close()
	for _, ready := range []*schemas.Ready{r, headless(r, ks, 20, 8)} {
		if got := b.bring(&schemas.BringOp{Ready: ready, Sources: at(h.srv.Addr(), extentsOf(theirs, 8))}); got != 0 {
			t.Errorf("%d blocks came", got)
		}
	}
	for i, k := range theirs {
		if h.near.a.Match([]kvtier.Key{k}) != 0 {
			t.Errorf("block %d of another tenant is here", i)
		}
	}
}

// below is a place below the memory, for the order in which places are asked. It is no
// store: it seals what it is told to hold.
type below struct {
	t     *testing.T
	mem   *hostmem.Client
	r     *schemas.Ready
	holds int
	asked [][]kvtier.Key
}

func (b *below) Fetch(_ context.Context, ks []kvtier.Key) (brought int) {
	b.asked = append(b.asked, slices.Clone(ks))
	sealChain(b.t, b.mem, b.r, ks, func(i int) bool { return i < b.holds })
	return b.holds
}

func TestBringFromBelowFirst(t *testing.T) {
	h := newHosts(t, 4096)
	r, ks := prompted(t, "salt", 24)
	sealChain(t, h.far.a, r, ks, func(int) bool { return true })
	low := &below{t: t, mem: h.near.b, r: r, holds: 15}
	b := newBringer(h.near.a, testFormat, "", slog.New(slog.DiscardHandler), low)
	defer b.close()
	if got := b.bring(&schemas.BringOp{Ready: r, Sources: at(h.srv.Addr(), extentsOf(ks, 8))}); got != 24 {
		t.Errorf("%d blocks came, want 15 from below and 9 from the other host", got)
	}
	if len(low.asked) != 1 || len(low.asked[0]) != 24 || h.client.Stats().Brought != 0 {
		t.Errorf("asked below %d times", len(low.asked))
	}
	if s := b.peers.Stats(); s.Brought != 9 {
		t.Errorf("%d blocks came from the other host", s.Brought)
	}
}

// What a turn may wait is bounded: by its deadline, by the operation's own time, and
// not at all for a node that just failed.
func TestBringIsBounded(t *testing.T) {
	h := newHosts(t, 4096)
	r, ks := prompted(t, "salt", 24)
	sealChain(t, h.far.a, r, ks, func(int) bool { return true })
	b := newBringer(h.near.a, testFormat, "", slog.New(slog.DiscardHandler))
	late := *r
	late.DeadlineNS = time.Now().Add(-time.Second).UnixNano()
	if got := b.bring(&schemas.BringOp{Ready: &late, Sources: at(h.srv.Addr(), extentsOf(ks, 8))}); got != 0 {
		t.Errorf("%d blocks came for a turn that is too late", got)
	}
	begin := time.Now()
	for range 5 { // nobody listens there
		if got := b.bring(&schemas.BringOp{Ready: r, Sources: at("127.0.0.1:1", extentsOf(ks, 8))}); got != 0 {
			t.Errorf("%d blocks came from nowhere", got)
		}
	}
	if took := time.Since(begin); took > 2*bringTime {
		t.Errorf("a node that is away costs %s", took)
	}
	done := make(chan schemas.OpDone, 1)
	b.start(&schemas.Op{ID: 7, Bring: &schemas.BringOp{Ready: r, Sources: at(h.srv.Addr(), extentsOf(ks, 8))}}, func(d schemas.OpDone) { done <- d })
	if d := <-done; d.ID != 7 || d.Bring == nil || d.Bring.Brought != 24 || d.Err != "" {
		t.Errorf("%+v", d)
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
	if got := b.bring(&schemas.BringOp{Ready: r}); got != 0 {
		t.Error("a closed one brings blocks")
	}
}
