package exact

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/worker"
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/lineage"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/model"
)

// reference computes turns in this process: one engine, one sequence, no bus and no
// shared memory.
type reference struct {
	model  *model.Model
	engine gpuexec.StepEngine
	format schemas.KVFormat
	keys   schemas.KeySpec
	opID   uint64
}

// layout is the version of exported blocks, as in services/executor.
const layout = 1

func openReference(m *model.Model, context int) (*reference, error) {
	e, err := m.NewEngine(model.EngineOptions{Slots: 1, Context: context, Threads: 1, Log: io.Discard})
	if err != nil {
		return nil, err
	}
	info := e.Info()
	return &reference{
		model: m, engine: e,
		format: schemas.KVFormat{Engine: info.Engine, Version: info.Version, Numerics: info.Numerics, Layout: layout},
		keys:   schemas.KeySpec{Salt: schemas.DefaultTenant, Model: m.Digest, Template: m.TemplateDigest(), Vocab: m.Vocab.Name()},
	}, nil
}

func (r *reference) close() error { return r.engine.Close() }

// sealed is a block as it was exported.
type sealed struct {
	worker.Block
	data []byte
}

// run is one turn of the reference.
type run struct {
	tokens []int32
	cached int
	keys   []kvtier.Key // of all whole blocks of prompt and answer, in order
}

// turn computes one turn of at most most tokens with the blocks in t, and leaves its
// own there. force, when not empty, is what it must say.
func (r *reference) turn(t *memory, prompt, force schemas.Tokens, sampling schemas.Sampling, most int) (run, error) {
	w := worker.New(worker.Config{
		Engine: r.engine, Vocab: r.model.Vocab, Tier: t, Keys: keys{}, Format: r.format,
		Now: func() int64 { return time.Now().UnixNano() },
	})
	if len(force) > 0 {
		most = len(force)
	}
	ready := &schemas.Ready{
		Header: schemas.H(), Prompt: schemas.Prompt{N: len(prompt), Tail: prompt}, Keys: r.keys, Sampling: sampling,
		MaxNew: most, IgnoreEOS: true, Force: force,
	}
	open, err := r.do(w, &schemas.Op{Open: &schemas.OpenOp{Stage: schemas.StageDecode, Attempt: 1, Ready: ready}})
	if err != nil {
		return run{}, err
	}
	out := run{cached: open.Open.Cached}
	if open.Open.Missing > 0 {
		if _, err := r.do(w, &schemas.Op{Prefill: &schemas.PrefillOp{Seqs: []int32{0}, MaxBlocks: 1 << 20, MaxNS: 1 << 60}}); err != nil {
			return run{}, err
		}
	}
	for finish := ""; finish == ""; {
		d, err := r.do(w, &schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{0}, MaxSteps: 1 << 20, MaxNS: 1 << 60}})
		if err != nil {
			return run{}, err
		}
		row := &d.Decode.Rows[0]
		if row.Err != "" {
			return run{}, errors.New(row.Err)
		}
		out.tokens = append(out.tokens, row.Tokens...)
		finish = row.Finish
	}
	if _, err := r.do(w, &schemas.Op{Seal: &schemas.SealOp{}}); err != nil {
		return run{}, err
	}
	if _, err := r.do(w, &schemas.Op{Drop: &schemas.DropOp{}}); err != nil {
		return run{}, err
	}
	for id := range r.engine.Limits().Slots {
		r.engine.Drop(gpuexec.SeqID(id)) // what the worker left in it: the next turn has another worker
	}
	out.keys, err = r.chain(append(append([]int32(nil), prompt...), out.tokens...))
	return out, err
}

// do performs one operation.
func (r *reference) do(w *worker.Worker, op *schemas.Op) (schemas.OpDone, error) {
	r.opID++
	op.ID = r.opID
	d := w.Do(op)
	if d.Err != "" {
		return d, fmt.Errorf("exact: the reference failed: %s", d.Err)
	}
	return d, nil
}

// chain names the whole blocks of tokens whose KV exists: all tokens but the last,
// which was never fed.
func (r *reference) chain(tokens []int32) ([]kvtier.Key, error) {
	k, err := keys{}.Root(r.keys, r.format)
	if err != nil {
		return nil, err
	}
	var out []kvtier.Key
	for i := range (len(tokens) - 1) / gpuexec.BlockTokens {
		k = keys{}.Chain(k, i, tokens[i*gpuexec.BlockTokens:(i+1)*gpuexec.BlockTokens], nil)
		out = append(out, k)
	}
	return out, nil
}

// keys names blocks as executors do.
type keys struct{}

func (keys) Root(spec schemas.KeySpec, f schemas.KVFormat) (worker.Key, error) {
	return lineage.Root(spec, f)
}

func (keys) Chain(parent worker.Key, index int, tokens []int32, _ []schemas.MediaSpan) worker.Key {
	k, err := kvtier.Chain(parent, index, tokens, nil)
	if err != nil {
		panic(err) // only media and negative indexes are refused, and there are none
	}
	return k
}

// memory is a worker.Tier that is a map: nothing is shared and nothing is evicted.
type memory struct {
	block  int // bytes
	blocks map[worker.Key]sealed
}

func (r *reference) memory() *memory {
	return &memory{block: r.engine.Limits().BlockBytes, blocks: map[worker.Key]sealed{}}
}

// Lease finds the longest prefix.
func (m *memory) Lease(ks []worker.Key) []worker.Ref {
	var out []worker.Ref
	for _, k := range ks {
		b, ok := m.blocks[k]
		if !ok {
			break
		}
		out = append(out, worker.Ref{Key: k, Decoded: b.Decoded})
	}
	return out
}

// Data is a block's bytes.
func (m *memory) Data(r worker.Ref) []byte { return m.blocks[r.Key].data }

// Valid is always true: nothing is evicted.
func (m *memory) Valid(worker.Ref) bool { return true }

// Release does nothing.
func (m *memory) Release([]worker.Ref) {}

// Has looks a block up.
func (m *memory) Has(k worker.Key) bool { _, ok := m.blocks[k]; return ok }

// Parent is the block before k.
func (m *memory) Parent(k worker.Key) (parent worker.Key, index int, ok bool) {
	b, ok := m.blocks[k]
	return b.Parent, b.Index, ok
}

// slot is memory for one block.
type slot struct{ b []byte }

// Data is where to write.
func (s *slot) Data() []byte { return s.b }

// Reserve gives as much as is asked for.
func (m *memory) Reserve(n int) ([]worker.Slot, error) {
	out := make([]worker.Slot, n)
	for i := range out {
		out[i] = &slot{make([]byte, m.block)}
	}
	return out, nil
}

// Seal keeps a block.
func (m *memory) Seal(s worker.Slot, b worker.Block) error {
	m.blocks[b.Key] = sealed{b, s.Data()}
	return nil
}

// Abandon does nothing.
func (m *memory) Abandon([]worker.Slot) {}
