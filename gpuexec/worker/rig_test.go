package worker_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
	"github.com/weir-dev/weir/gpuexec/goengine"
	"github.com/weir-dev/weir/gpuexec/nullengine"
	"github.com/weir-dev/weir/gpuexec/spm"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/schemas"
)

// memTier is a fake tier in memory: no eviction but by hand.
type memTier struct {
	blocks  map[worker.Key]*memBlock
	room    int // blocks that still fit; negative means without bound
	leased  int
	onData  func(r worker.Ref) // called when a block's bytes are asked for
	sealErr error
}

type memBlock struct {
	worker.Block
	data []byte
	gen  uint64
}

type memSlot struct{ data []byte }

func (s *memSlot) Data() []byte { return s.data }

func newTier() *memTier { return &memTier{blocks: map[worker.Key]*memBlock{}, room: -1} }

func (m *memTier) Lease(keys []worker.Key) (refs []worker.Ref) {
	for _, k := range keys {
		b := m.blocks[k]
		if b == nil {
			break
		}
		m.leased++
		refs = append(refs, worker.Ref{Gen: b.gen, Key: k, Decoded: b.Decoded})
	}
	return refs
}

func (m *memTier) Data(r worker.Ref) []byte {
	d := m.blocks[r.Key].data
	if m.onData != nil {
		m.onData(r)
	}
	return d
}

func (m *memTier) Valid(r worker.Ref) bool {
	b := m.blocks[r.Key]
	return b != nil && b.gen == r.Gen
}

func (m *memTier) Release(refs []worker.Ref) { m.leased -= len(refs) }
func (m *memTier) Has(k worker.Key) bool     { return m.blocks[k] != nil }

func (m *memTier) Parent(k worker.Key) (worker.Key, int, bool) {
	b := m.blocks[k]
	if b == nil {
		return worker.Key{}, 0, false
	}
	return b.Parent, b.Index, true
}

var blockBytes int // of the engine under test, set by newRig

func (m *memTier) Reserve(n int) (out []worker.Slot, err error) {
	if m.room == 0 {
		return nil, errors.New("fake tier: full")
	}
	if m.room > 0 {
		n = min(n, m.room)
		m.room -= n
	}
	for range n {
		out = append(out, &memSlot{make([]byte, blockBytes)})
	}
	return out, nil
}

func (m *memTier) Seal(s worker.Slot, b worker.Block) error {
	if m.sealErr != nil {
		return m.sealErr
	}
	if m.blocks[b.Key] == nil {
		m.blocks[b.Key] = &memBlock{Block: b, data: s.Data()}
	}
	return nil
}

func (m *memTier) Abandon(s []worker.Slot) {
	if m.room >= 0 {
		m.room += len(s)
	}
}

// copyOf makes a tier with the same blocks: what survives an executor's crash.
func (m *memTier) copyOf() *memTier {
	n := newTier()
	for k, b := range m.blocks {
		c := *b
		n.blocks[k] = &c
	}
	return n
}

// shaKeys names blocks like the real tier does, as far as the worker can tell.
type shaKeys struct{}

func (shaKeys) Root(spec schemas.KeySpec, f schemas.KVFormat) (worker.Key, error) {
	return sha256.Sum256(fmt.Appendf(nil, "%+v %+v", spec, f)), nil
}

func (shaKeys) Chain(parent worker.Key, index int, tokens []int32, media []schemas.MediaSpan) worker.Key {
	b := binary.LittleEndian.AppendUint32(parent[:len(parent):len(parent)], uint32(index))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	if len(media) > 0 {
		b = fmt.Appendf(b, "%v", media)
	}
	return sha256.Sum256(b)
}

// rig is one executor's worker with what belongs to it.
type rig struct {
	t      testing.TB
	w      *worker.Worker
	eng    gpuexec.StepEngine
	tier   *memTier
	now    int64
	format schemas.KVFormat
}

// engines under test: the fake one, and the exact one in Go on a tiny model.
var engines = []struct {
	name string
	make func(t testing.TB) (gpuexec.StepEngine, gpuexec.Vocab)
}{
	{"null", func(t testing.TB) (gpuexec.StepEngine, gpuexec.Vocab) {
		e, err := nullengine.New(nullengine.Options{Slots: 4, Context: 1024})
		if err != nil {
			t.Fatal(err)
		}
		return e, nullengine.Vocab{}
	}},
	{"go", func(t testing.TB) (gpuexec.StepEngine, gpuexec.Vocab) {
		e, err := goengine.New(tiny(), goengine.Options{Slots: 4, Context: 512})
		if err != nil {
			t.Fatal(err)
		}
		v, err := spm.New(tiny(), "tiny")
		if err != nil {
			t.Fatal(err)
		}
		return e, v
	}},
}

var tiny = sync.OnceValue(func() *gguf.File {
	var b bytes.Buffer
	if err := gguf.WritePreset(&b, "tiny"); err != nil {
		panic(err)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		panic(err)
	}
	return f
})

func newRig(t testing.TB, engine int, tier *memTier) *rig {
	e, v := engines[engine].make(t)
	return rigOf(t, e, v, tier)
}

func rigOf(t testing.TB, e gpuexec.StepEngine, v gpuexec.Vocab, tier *memTier) *rig {
	blockBytes = e.Limits().BlockBytes
	r := &rig{t: t, eng: e, tier: tier, format: schemas.KVFormat{Engine: e.Info().Engine}}
	r.w = worker.New(worker.Config{
		Engine: e, Vocab: v, Tier: tier, Keys: shaKeys{}, Format: r.format, Now: func() int64 { r.now += 1000; return r.now },
	})
	return r
}

func (r *rig) do(op *schemas.Op) schemas.OpDone {
	r.t.Helper()
	d := r.w.Do(op)
	if r.tier.leased != 0 {
		r.t.Fatalf("%d leases are left after an operation", r.tier.leased)
	}
	return d
}

func (r *rig) open(o *schemas.OpenOp) *schemas.OpenDone {
	r.t.Helper()
	if o.Stage == "" {
		o.Stage = schemas.StageDecode
	}
	d := r.do(&schemas.Op{Open: o})
	if d.Err != "" {
		r.t.Fatalf("open: %s", d.Err)
	}
	return d.Open
}

func (r *rig) prefill(seq int32, blocks int) *schemas.PrefillRow {
	r.t.Helper()
	d := r.do(&schemas.Op{Prefill: &schemas.PrefillOp{Seqs: []int32{seq}, MaxBlocks: blocks, MaxNS: 1 << 40}})
	if d.Err != "" {
		r.t.Fatalf("prefill: %s", d.Err)
	}
	return &d.Prefill.Rows[0]
}

func (r *rig) seal(seq int32) *schemas.SealDone {
	r.t.Helper()
	d := r.do(&schemas.Op{Seal: &schemas.SealOp{Seq: seq}})
	if d.Err != "" {
		r.t.Fatalf("seal: %s", d.Err)
	}
	return d.Seal
}

func (r *rig) drop(seq int32) { r.do(&schemas.Op{Drop: &schemas.DropOp{Seq: seq}}) }

// answer is what came out of a sequence.
type answer struct {
	tokens   []int32 // delivered ones first
	text     string
	finish   string
	end      string
	logprobs int
	whole    string // the text that the last row says is the whole answer
}

// take adds a row, and checks that indexes and text offsets are contiguous.
func (a *answer) take(t testing.TB, row *schemas.DecodeRow) {
	t.Helper()
	if row.Err != "" {
		t.Fatalf("row: %s (%s)", row.Err, row.Code)
	}
	if len(row.Tokens) > 0 && row.First != len(a.tokens) {
		t.Fatalf("row begins at token %d, want %d", row.First, len(a.tokens))
	}
	if row.Text != "" && row.TextAt != len(a.text) {
		t.Fatalf("text %q begins at byte %d, want %d (%q)", row.Text, row.TextAt, len(a.text), a.text)
	}
	a.tokens = append(a.tokens, row.Tokens...)
	a.text += row.Text
	a.logprobs += len(row.Logprobs)
	if row.Finish != "" {
		a.finish, a.whole, a.end = row.Finish, row.Answer, row.End
	}
}

// decode runs an open sequence until it ends, or until limit tokens are there.
func (r *rig) decode(seq int32, a *answer, steps, limit int) {
	r.t.Helper()
	for n := 0; a.finish == "" && len(a.tokens) < limit; n++ {
		if n > 5000 {
			r.t.Fatal("the sequence does not end")
		}
		d := r.do(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{seq}, MaxSteps: steps, MaxNS: 1 << 40}})
		if d.Err != "" {
			r.t.Fatalf("decode: %s", d.Err)
		}
		a.take(r.t, &d.Decode.Rows[0])
	}
}

// run is a whole turn on a worker that has nothing else to do.
func (r *rig) run(ready *schemas.Ready) answer {
	r.t.Helper()
	o := r.open(&schemas.OpenOp{Ready: ready})
	if o.NeedHead {
		r.t.Fatal("the head is needed")
	}
	if o.Missing > 0 {
		r.prefill(0, 1<<20)
	}
	var a answer
	r.decode(0, &a, 4, 1<<20)
	return a
}

// turn is a READY message whose prompt is n tokens that differ from each other.
func turn(n, maxNew int) *schemas.Ready {
	p := make(schemas.Tokens, n)
	for i := range p {
		p[i] = int32('a' + (i*7+i/26)%26)
	}
	return &schemas.Ready{
		Header: schemas.H(), Tenant: "t", Session: "s", Turn: "u", Branch: "main", Job: schemas.JobID("t", "s", "u"), Pool: "m",
		Prompt: schemas.Prompt{N: n, Tail: p}, MaxNew: maxNew, Keys: schemas.KeySpec{Model: "m"}, Sampling: schemas.Sampling{Seed: 7},
	}
}

// headless is the same turn as a job carries it when lineage knows blocks of it.
func (r *rig) headless(ready *schemas.Ready, blocks int) *schemas.Ready {
	c := *ready
	k, _ := shaKeys{}.Root(c.Keys, r.format)
	all := ready.Prompt.Tail
	for i := range blocks {
		k = shaKeys{}.Chain(k, i, all[i*64:(i+1)*64], nil)
	}
	c.Prompt = schemas.Prompt{
		N: len(all), TailFrom: blocks * 64, Tail: all[blocks*64:], Path: []schemas.Extent{{Key: hex.EncodeToString(k[:]), N: blocks}},
	}
	return &c
}
