// Package nullengine is a FAKE engine for benchmarks of everything around an
// engine: bus, router, KV tier, gateway. There is no model. The next token is a
// cheap function of the previous token and its position, a block holds nothing but
// its token ids, and every row costs a few nanoseconds.
//
// It cannot show anything about compute: no prefill or decode time, no numerics, no
// batching effect, no realistic KV size. It does show lost, repeated or reordered
// tokens, because the text that follows from a prompt is a pure function of it.
//
// NewVision makes one that takes images too: see vision.go.
//
// Read engine.go, then vocab.go.
package nullengine

import (
	"encoding/binary"
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
)

// blockBytes is the size of a block: 64 token ids of 4 bytes.
const blockBytes = gpuexec.BlockTokens * 4

// Options bound an engine. Zero values give the defaults.
type Options struct {
	Slots   int // sequences; default 4096
	Context int // tokens per sequence; default 32768
}

// Engine is the fake engine. Like every engine it is owned by one goroutine.
type Engine struct {
	slots   [][]int32 // tokens of each sequence
	seen    []uint64  // step number that last held the slot, to find repeated rows
	step    uint64
	context int
	rows    []gpuexec.Row // of the last step
	logits  [vocabSize]float32
	sight   *sight // of an engine that takes images, else nil
}

var _ gpuexec.StepEngine = (*Engine)(nil)

// New makes an engine. The error wraps gpuexec.ErrUnsupported: a negative bound.
func New(o Options) (*Engine, error) {
	if o.Slots < 0 || o.Context < 0 {
		return nil, fmt.Errorf("null engine with %d slots and a context of %d: %w", o.Slots, o.Context, gpuexec.ErrUnsupported)
	}
	if o.Slots == 0 {
		o.Slots = 4096
	}
	if o.Context == 0 {
		o.Context = 32768
	}
	return &Engine{slots: make([][]int32, o.Slots), seen: make([]uint64, o.Slots), context: o.Context}, nil
}

// Info names the engine; it lists no device, since none computes.
func (e *Engine) Info() gpuexec.Info {
	return gpuexec.Info{Engine: "null", Version: "1", Numerics: "none", Exact: true}
}

// Limits are the bounds given to New. A decode step may hold one row per slot.
func (e *Engine) Limits() gpuexec.Limits {
	return gpuexec.Limits{
		Slots: len(e.slots), Context: e.context, BatchRows: max(gpuexec.BlockTokens, len(e.slots)),
		BlockBytes: blockBytes, Vocab: int(vocabSize),
	}
}

// Step appends the rows' tokens. All rows are checked first.
func (e *Engine) Step(phase gpuexec.Phase, rows []gpuexec.Row) error {
	if err := e.check(phase, rows); err != nil {
		return err
	}
	for _, r := range rows {
		cell := r.Token
		if e.sight != nil {
			cell = e.sight.look(r)
		}
		e.slots[r.Seq] = append(e.slots[r.Seq], cell)
	}
	e.rows = append(e.rows[:0], rows...)
	return nil
}

// check refuses rows that break the rules of Step, before anything changes.
func (e *Engine) check(phase gpuexec.Phase, rows []gpuexec.Row) error {
	bad := func(i int, why string) error {
		return fmt.Errorf("row %d (%+v): %s: %w", i, rows[i], why, gpuexec.ErrBadBatch)
	}
	if limit := e.Limits().BatchRows; len(rows) == 0 || len(rows) > limit || phase == gpuexec.PhasePrefill && len(rows) > gpuexec.BlockTokens {
		return fmt.Errorf("step of %d rows, want 1 to %d (prefill: to %d): %w", len(rows), limit, gpuexec.BlockTokens, gpuexec.ErrBadBatch)
	}
	if phase > gpuexec.PhaseDecode {
		return fmt.Errorf("phase %d: %w", phase, gpuexec.ErrBadBatch)
	}
	e.step++
	for i, r := range rows {
		want := e.Len(r.Seq)
		switch {
		case r.Seq < 0 || int(r.Seq) >= len(e.slots):
			return bad(i, "no such slot")
		case r.Token < 0 || r.Token >= vocabSize:
			return bad(i, "token outside the vocabulary")
		case phase == gpuexec.PhasePrefill && r.Seq != rows[0].Seq:
			return bad(i, "a prefill step holds one sequence")
		case phase == gpuexec.PhaseDecode && e.seen[r.Seq] == e.step:
			return bad(i, "second decode row of this sequence")
		}
		if phase == gpuexec.PhasePrefill {
			want += i
		}
		if int(r.Pos) != want {
			return bad(i, fmt.Sprintf("position must be %d", want))
		}
		if want >= e.context {
			return fmt.Errorf("sequence %d holds %d tokens, the context is full: %w", r.Seq, e.Len(r.Seq), gpuexec.ErrNoRoom)
		}
		e.seen[r.Seq] = e.step
	}
	return nil
}

// Next is the token that greedy sampling finds after token at position pos: a
// lower-case letter or now and then a space, so the text looks like words.
func Next(token, pos int32) int32 {
	const letters = 26
	n := (uint32(token)*31 + uint32(pos)*17 + 7) % (letters + 5)
	if n >= letters {
		return ' '
	}
	return int32('a' + n)
}

// Logits are 0 for the bytes, 1 for the next token and -100 for the control
// tokens, so that sampling ends no answer by chance while a grammar that allows
// nothing but the end still finds it; nil for a row that the last step did not
// hold or whose logits were not wanted.
func (e *Engine) Logits(i int) []float32 {
	if i < 0 || i >= len(e.rows) || !e.rows[i].Logits {
		return nil
	}
	clear(e.logits[:])
	for control := tokenBOS; control < vocabSize; control++ {
		e.logits[control] = -100
	}
	next := Next(e.rows[i].Token, e.rows[i].Pos)
	if e.sight != nil {
		next = e.sight.next(e.rows[i])
	}
	e.logits[next] = 1
	return e.logits[:]
}

// Len is the number of tokens of a sequence; 0 for an id outside the slots.
func (e *Engine) Len(seq gpuexec.SeqID) int {
	if seq < 0 || int(seq) >= len(e.slots) {
		return 0
	}
	return len(e.slots[seq])
}

// Export writes the token ids of whole blocks, little endian.
func (e *Engine) Export(seq gpuexec.SeqID, first int, dst [][]byte) error {
	if first < 0 || (first+len(dst))*gpuexec.BlockTokens > e.Len(seq) {
		return fmt.Errorf("export of blocks %d to %d of sequence %d with %d tokens: %w", first, first+len(dst)-1, seq, e.Len(seq), gpuexec.ErrBadBlock)
	}
	for i, d := range dst {
		if len(d) != blockBytes {
			return fmt.Errorf("export into %d bytes, a block has %d: %w", len(d), blockBytes, gpuexec.ErrBadBlock)
		}
		from := (first + i) * gpuexec.BlockTokens
		for j, token := range e.slots[seq][from : from+gpuexec.BlockTokens] {
			binary.LittleEndian.PutUint32(d[4*j:], uint32(token))
		}
	}
	return nil
}

// Import fills an empty sequence.
func (e *Engine) Import(seq gpuexec.SeqID, src [][]byte) error {
	if seq < 0 || int(seq) >= len(e.slots) || len(e.slots[seq]) != 0 {
		return fmt.Errorf("import into sequence %d, want an empty one of %d: %w", seq, len(e.slots), gpuexec.ErrBadBatch)
	}
	if len(src)*gpuexec.BlockTokens > e.context {
		return fmt.Errorf("import of %d blocks, the context has %d tokens: %w", len(src), e.context, gpuexec.ErrNoRoom)
	}
	tokens := e.slots[seq]
	for i, b := range src {
		if len(b) != blockBytes {
			e.Drop(seq)
			return fmt.Errorf("import of a block of %d bytes, want %d: %w", len(b), blockBytes, gpuexec.ErrBadBlock)
		}
		for j := 0; j < blockBytes; j += 4 {
			token := binary.LittleEndian.Uint32(b[j:])
			if e.sight != nil && token&imageCell != 0 {
				e.sight.fold(seq, int32(token))
			} else if token >= uint32(vocabSize) {
				e.Drop(seq)
				return fmt.Errorf("import of block %d: token id %d: %w", i, token, gpuexec.ErrBadBlock)
			}
			tokens = append(tokens, int32(token))
		}
	}
	e.slots[seq] = tokens
	return nil
}

// Drop empties a sequence and keeps its memory for the next one.
func (e *Engine) Drop(seq gpuexec.SeqID) {
	if seq >= 0 && int(seq) < len(e.slots) {
		e.slots[seq] = e.slots[seq][:0]
		if e.sight != nil {
			e.sight.drop(seq)
		}
	}
}

// Close does nothing.
func (e *Engine) Close() error { return nil }
