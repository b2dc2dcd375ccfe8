package executor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
)

// medium is where sealed blocks lie. views are two executors' ways to it: what the
// first one seals, the second one may find.
type medium interface {
	views() (worker.Tier, worker.Tier)
}

// arena is the shared memory of one host, with its daemon and two clients.
type arena struct {
	dir  string
	d    *hostmem.Daemon
	a, b *hostmem.Client
}

func (m arena) views() (worker.Tier, worker.Tier) { return &tier{mem: m.a}, &tier{mem: m.b} }

func newArena(t *testing.T, blockBytes int) arena {
	t.Helper()
	base := ""
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "weirt")
	if err != nil {
		t.Fatal(err)
	}
	d, err := hostmem.NewDaemon(hostmem.Config{Dir: dir, Bytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	attach := func(id string) *hostmem.Client {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c, err := hostmem.Attach(ctx, hostmem.Options{Dir: dir, Writer: id, Pool: "p", BlockBytes: int64(blockBytes), Wait: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return arena{dir, d, attach("a"), attach("b")}
}

// TestNoSharing: prompts of equal tokens share exactly the blocks before the first
// image that differs, and none with another tenant, model, adapter, template option
// or tokenizer. Images lie anywhere, also over the borders of blocks. What one
// executor reads of another's blocks gives the bytes and the answer that it would
// have computed.
//
// It is so over one host's memory, and over those of two hosts whose second one fetches
// from the first.
func TestNoSharing(t *testing.T) {
	size := visionEngine(t).Limits().BlockBytes
	t.Run("arena", func(t *testing.T) { checkNoSharing(t, newArena(t, size)) })
	t.Run("peer", func(t *testing.T) {
		m := newHosts(t, size)
		checkNoSharing(t, m)
		if n := m.brought(); n == 0 {
			t.Error("no block was moved between the hosts")
		} else {
			t.Logf("%d blocks were moved between the hosts", n)
		}
	})
}

func checkNoSharing(t *testing.T, m medium) {
	writer, reader := m.views()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		first := drawTurn(t)
		second, what := change(t, first)
		for _, r := range []*schemas.Ready{first, second} {
			r.Keys.Salt = fmt.Sprint(run, r.Keys.Salt) // what earlier runs left is another tenant's
		}
		want := answerOf(t, newLocal(), second)
		answerOf(t, writer, first)
		got := answerOf(t, reader, second)
		if shared := shareable(first, second); got.cached != shared*gpuexec.BlockTokens {
			t.Fatalf("%s: %d tokens were found of another prompt, %d may be", what, got.cached, shared*gpuexec.BlockTokens)
		}
		if !slices.Equal(got.tokens, want.tokens) || !slices.EqualFunc(got.kv, want.kv, bytes.Equal) {
			t.Fatalf("%s: answer %v with %d cached tokens, computed alone %v; or other KV bytes", what, got.tokens, got.cached, want.tokens)
		}
	})
}

func visionEngine(t interface{ Fatal(...any) }) *nullengine.Vision {
	e, err := nullengine.NewVision(nullengine.Options{Slots: 1, Context: 1024})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// drawTurn makes a prompt with up to three images.
func drawTurn(t *rapid.T) *schemas.Ready {
	n := rapid.IntRange(65, 460).Draw(t, "tokens")
	tokens := make(schemas.Tokens, n)
	for i := range tokens {
		tokens[i] = int32('a' + i*7%26)
	}
	var media []schemas.MediaSpan
	at := 0
	for i := range rapid.IntRange(0, 3).Draw(t, "images") {
		// Some follow each other at once, most do not; borders of blocks are likely.
		at += rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 130)).Draw(t, "gap")
		size := rapid.OneOf(rapid.IntRange(1, 150), rapid.SampledFrom([]int{64, 128})).Draw(t, "size")
		if at+size > n-1 {
			break
		}
		media = append(media, schemas.MediaSpan{Digest: fmt.Sprintf("image-%d", i), Offset: at, Length: size})
		for k := at; k < at+size; k++ {
			tokens[k] = nullengine.TokenImage
		}
		at += size
	}
	return &schemas.Ready{
		Header: schemas.H(), Tenant: "t", Session: "s", Turn: "u", Branch: "main", Job: schemas.JobID("t", "s", "u"), Pool: "p",
		Prompt: schemas.Prompt{N: n, Tail: tokens, Media: media}, MaxNew: 8, IgnoreEOS: true,
		Keys: schemas.KeySpec{Salt: "salt", Model: "model", Adapter: "adapter", Template: "options", Vocab: "vocab"},
	}
}

// change makes a turn with the same tokens and perhaps something else different.
func change(t *rapid.T, r *schemas.Ready) (*schemas.Ready, string) {
	c := *r
	c.Prompt.Media = slices.Clone(r.Prompt.Media)
	kinds := []string{"nothing", "tenant", "model", "adapter", "template", "tokenizer"}
	if len(r.Prompt.Media) > 0 {
		kinds = append(kinds, "image", "image", "split", "uncached")
	}
	what := rapid.SampledFrom(kinds).Draw(t, "change")
	i := 0
	if len(c.Prompt.Media) > 0 {
		i = rapid.IntRange(0, len(c.Prompt.Media)-1).Draw(t, "which")
	}
	switch what {
	case "tenant":
		c.Keys.Salt = "other"
	case "model":
		c.Keys.Model = "other"
	case "adapter":
		c.Keys.Adapter = rapid.SampledFrom([]string{"", "other"}).Draw(t, "adapter")
	case "template":
		c.Keys.Template = "other"
	case "tokenizer":
		c.Keys.Vocab = "other"
	case "image":
		c.Prompt.Media[i].Digest = "other"
	case "uncached":
		c.Prompt.Media[i].Digest = ""
	case "split": // the same placeholders, but two images of that digest
		if m := c.Prompt.Media[i]; m.Length > 1 {
			at := rapid.IntRange(1, m.Length-1).Draw(t, "at")
			c.Prompt.Media[i].Length = at
			c.Prompt.Media = slices.Insert(c.Prompt.Media, i+1, schemas.MediaSpan{Digest: m.Digest, Offset: m.Offset + at, Length: m.Length - at})
		}
	}
	return &c, what
}

// shareable is the number of leading blocks whose tokens, images and key specs are
// equal, counted token by token.
func shareable(a, b *schemas.Ready) int {
	whole := (a.Prompt.N - 1) / gpuexec.BlockTokens
	if a.Keys != b.Keys {
		return 0
	}
	image := func(r *schemas.Ready, at int) schemas.MediaSpan {
		for _, m := range r.Prompt.Media {
			if at >= m.Offset && at < m.Offset+m.Length {
				return m
			}
		}
		return schemas.MediaSpan{}
	}
	for _, r := range []*schemas.Ready{a, b} {
		if slices.ContainsFunc(r.Prompt.Media, func(m schemas.MediaSpan) bool { return m.Digest == "" }) {
			return 0
		}
	}
	for i := range whole * gpuexec.BlockTokens {
		if image(a, i) != image(b, i) {
			return i / gpuexec.BlockTokens
		}
	}
	return whole
}

type answer struct {
	cached int
	tokens []int32
	kv     [][]byte
}

// answerOf runs a turn on an executor of its own and seals what it computed.
func answerOf(t *rapid.T, mem worker.Tier, r *schemas.Ready) (out answer) {
	eng := visionEngine(t)
	now := int64(0)
	w := worker.New(worker.Config{
		Engine: eng, Vocab: nullengine.Vocab{}, Tier: mem, Keys: keys{}, Now: func() int64 { now++; return now },
		Format: schemas.KVFormat{Engine: "null", Version: "1", Numerics: "vision", Layout: 1},
	})
	do := func(op *schemas.Op) schemas.OpDone {
		d := w.Do(op)
		if d.Err != "" {
			t.Fatalf("%+v: %s", op, d.Err)
		}
		return d
	}
	o := do(&schemas.Op{Open: &schemas.OpenOp{Stage: schemas.StageDecode, Ready: r}}).Open
	out.cached = o.Cached
	if o.Missing > 0 {
		do(&schemas.Op{Prefill: &schemas.PrefillOp{Seqs: []int32{0}, MaxBlocks: 1 << 20, MaxNS: 1 << 40}})
	}
	for len(out.tokens) < r.MaxNew {
		d := do(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0}, MaxSteps: 16, MaxNS: 1 << 40}})
		out.tokens = append(out.tokens, d.Decode.Rows[0].Tokens...)
	}
	out.kv = make([][]byte, eng.Len(0)/gpuexec.BlockTokens)
	for i := range out.kv {
		out.kv[i] = make([]byte, eng.Limits().BlockBytes)
	}
	if err := eng.Export(0, 0, out.kv); err != nil {
		t.Fatal(err)
	}
	do(&schemas.Op{Seal: &schemas.SealOp{Seq: 0}})
	return out
}

// local keeps nothing.
type local struct{ worker.Tier }

func newLocal() worker.Tier { return local{} }

func (local) Lease([]worker.Key) []worker.Ref    { return nil }
func (local) Release([]worker.Ref)               {}
func (local) Has(worker.Key) bool                { return false }
func (local) Reserve(int) ([]worker.Slot, error) { return nil, nil }

// TestPin: blocks that are pinned stay when room is asked for, and the asker hears
// soon that there is none.
func TestPin(t *testing.T) {
	a := newArena(t, 1<<18)
	mem := &tier{mem: a.a}
	n := a.a.Capacity()
	var parent worker.Key
	parent[0] = 1
	var chain []worker.Key
	for i := range n {
		k := keys{}.Chain(parent, i, []int32{1}, nil)
		slots, err := a.a.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := mem.Seal(slots[0], worker.Block{Key: k, Parent: parent, Index: i}); err != nil {
			t.Fatal(err)
		}
		chain, parent = append(chain, k), k
	}
	unpin := mem.Pin(chain)
	began := time.Now()
	if slots, err := mem.Reserve(n); err == nil {
		t.Errorf("%d slots of a memory that is pinned", len(slots))
	}
	if took := time.Since(began); took > 20*reserveWait { // the client itself would wait 10 s
		t.Errorf("the refusal took %s", took)
	}
	if got := a.a.Match(asKeys(chain)); got != n {
		t.Errorf("%d of %d pinned blocks are left", got, n)
	}
	unpin()
	slots, err := a.a.Reserve(t.Context(), n)
	if err != nil || len(slots) != n {
		t.Errorf("%d slots, %v", len(slots), err)
	}
	a.a.Abandon(slots)
}
