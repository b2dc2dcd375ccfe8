package goengine

import (
	"fmt"
	"runtime"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
)

// Engine computes one model in one goroutine.
type Engine struct {
	model   *model
	kernels *kernels
	context int
	seqs    []sequence
	pool    pool
	rope    rope

	rows    []gpuexec.Row // of the last step
	logits  [][]float32   // per row of the last step; nil where not wanted
	scratch scratch
}

// sequence is one slot.
type sequence struct {
	n      int // tokens
	blocks []block
}

var _ gpuexec.StepEngine = (*Engine)(nil)

// New loads a llama-architecture model with F32, F16 or Q8_0 weights. The file's
// bytes may be released afterwards. Errors wrap gpuexec.ErrUnsupported or the
// errors of package gguf.
func New(f *gguf.File, o Options) (*Engine, error) {
	m, err := loadModel(f)
	if err != nil {
		return nil, err
	}
	if o.Slots == 0 {
		o.Slots = defaultSlots
	}
	if o.Context == 0 {
		o.Context = m.context
	}
	if o.Slots < 0 || o.Slots > maxSlots || o.Context < 0 || o.Blocks < 0 {
		return nil, unsupported("%d slots (at most %d), context %d, %d blocks", o.Slots, maxSlots, o.Context, o.Blocks)
	}
	if o.Context > m.context {
		return nil, unsupported("a context of %d tokens, the model has %d", o.Context, m.context)
	}
	if o.Blocks == 0 {
		o.Blocks = o.Slots * blocksOf(o.Context)
	}
	e := &Engine{
		model: m, kernels: scalarKernels(), context: o.Context,
		seqs: make([]sequence, o.Slots),
		pool: pool{limit: o.Blocks, floats: m.blockFloats()},
		rope: newRope(m),
	}
	if !o.Scalar {
		e.kernels = bestKernels()
	}
	return e, nil
}

// blocksOf is the number of blocks that hold n tokens.
func blocksOf(n int) int { return (n + blockTokens - 1) / blockTokens }

// Info names the engine. The processor architecture is a part of Numerics because
// the RoPE tables come from the math package, whose last bit may differ between
// architectures; the kernels themselves agree everywhere.
func (e *Engine) Info() gpuexec.Info {
	return gpuexec.Info{
		Engine: "go", Version: "1",
		Numerics: "kv=f32,act=q8_0,step=64,arch=" + runtime.GOARCH,
		Devices:  []gpuexec.Device{{Name: "CPU", Description: "Go, one thread, " + e.kernels.name + " kernels"}},
		Exact:    true,
	}
}

// Limits are the bounds of this engine.
func (e *Engine) Limits() gpuexec.Limits {
	return gpuexec.Limits{
		Slots: len(e.seqs), Context: e.context, BatchRows: blockTokens,
		BlockBytes: 4 * e.model.blockFloats(), Vocab: e.model.vocab,
	}
}

// Step computes rows. Errors wrap gpuexec.ErrBadBatch or gpuexec.ErrNoRoom, and
// then nothing was computed.
func (e *Engine) Step(phase gpuexec.Phase, rows []gpuexec.Row) error {
	if err := e.check(phase, rows); err != nil {
		return err
	}
	for _, r := range rows {
		s := &e.seqs[r.Seq]
		if s.n%blockTokens == 0 {
			s.blocks = append(s.blocks, e.pool.get())
		}
		s.n++
	}
	e.rows = append(e.rows[:0], rows...)
	e.forward(e.rows)
	return nil
}

// check refuses rows that break the rules of Step.
func (e *Engine) check(phase gpuexec.Phase, rows []gpuexec.Row) error {
	if len(rows) == 0 || len(rows) > blockTokens {
		return fmt.Errorf("go engine: step of %d rows, want 1 to %d: %w", len(rows), blockTokens, gpuexec.ErrBadBatch)
	}
	if phase > gpuexec.PhaseDecode {
		return fmt.Errorf("go engine: phase %d: %w", phase, gpuexec.ErrBadBatch)
	}
	bad := func(i int, why string) error {
		return fmt.Errorf("go engine: row %d %+v: %s: %w", i, rows[i], why, gpuexec.ErrBadBatch)
	}
	fresh := 0 // blocks that the step needs
	for i, r := range rows {
		switch {
		case r.Seq < 0 || int(r.Seq) >= len(e.seqs):
			return bad(i, "no such slot")
		case r.Token < 0 || int(r.Token) >= e.model.vocab:
			return bad(i, "token outside the vocabulary")
		case phase == gpuexec.PhasePrefill && r.Seq != rows[0].Seq:
			return bad(i, "a prefill step holds one sequence")
		}
		want := e.seqs[r.Seq].n
		if phase == gpuexec.PhasePrefill {
			want += i
		} else if repeated(rows[:i], r.Seq) {
			return bad(i, "second decode row of this sequence")
		}
		if int(r.Pos) != want {
			return bad(i, fmt.Sprintf("position must be %d", want))
		}
		if want >= e.context {
			return fmt.Errorf("go engine: sequence %d has filled its context of %d tokens: %w", r.Seq, e.context, gpuexec.ErrNoRoom)
		}
		if want%blockTokens == 0 {
			fresh++
		}
	}
	if fresh > e.pool.available() {
		return fmt.Errorf("go engine: the step needs %d KV blocks, %d are free: %w", fresh, e.pool.available(), gpuexec.ErrNoRoom)
	}
	return nil
}

func repeated(rows []gpuexec.Row, seq gpuexec.SeqID) bool {
	for _, r := range rows {
		if r.Seq == seq {
			return true
		}
	}
	return false
}

// Logits are those of row i of the last step; nil when they were not wanted.
func (e *Engine) Logits(i int) []float32 {
	if i < 0 || i >= len(e.logits) {
		return nil
	}
	return e.logits[i]
}

// Len is the number of tokens of a sequence; 0 for an id outside the slots.
func (e *Engine) Len(seq gpuexec.SeqID) int {
	if seq < 0 || int(seq) >= len(e.seqs) {
		return 0
	}
	return e.seqs[seq].n
}

// Drop forgets a sequence; its blocks are used again.
func (e *Engine) Drop(seq gpuexec.SeqID) {
	if seq < 0 || int(seq) >= len(e.seqs) {
		return
	}
	s := &e.seqs[seq]
	e.pool.put(s.blocks...)
	clear(s.blocks)
	s.blocks, s.n = s.blocks[:0], 0
}

// Close releases all memory.
func (e *Engine) Close() error {
	*e = Engine{}
	return nil
}
