package llamacpp

import (
	"fmt"
	"unsafe"

	"github.com/weir-dev/weir/gpuexec"
)

// rowBuffers are the arrays of one llama_batch, laid out once in memory that the
// library may read. Filling them allocates nothing.
type rowBuffers struct {
	mem    arena
	header []batch // one
	token  []int32
	pos    []int32
	seqID  []int32
	logits []int8
}

// newRowBuffers makes room for batches of at most rows rows. The arrays that are
// the same in every batch (one sequence id per row, pointers to the ids) are
// written here.
func newRowBuffers(rows int) (*rowBuffers, error) {
	b := &rowBuffers{}
	perRow := 4*4 + 8 + 1 // token, pos, n_seq_id, seq_id, pointer to seq_id, logits
	mem, err := b.mem.grow(int(unsafe.Sizeof(batch{})) + rows*perRow + 64)
	if err != nil {
		return nil, err
	}
	var nSeqID []int32
	var seqPtr []uintptr
	b.header, mem = carve[batch](mem, 1)
	seqPtr, mem = carve[uintptr](mem, rows)
	b.token, mem = carve[int32](mem, rows)
	b.pos, mem = carve[int32](mem, rows)
	b.seqID, mem = carve[int32](mem, rows)
	nSeqID, mem = carve[int32](mem, rows)
	b.logits, _ = carve[int8](mem, rows)
	for i := range rows {
		nSeqID[i] = 1
		seqPtr[i] = address(b.seqID[i:])
	}
	b.header[0] = batch{
		Token: address(b.token), Pos: address(b.pos), NSeqID: address(nSeqID),
		SeqID: address(seqPtr), Logits: address(b.logits),
	}
	return b, nil
}

// fill writes rows that were checked before.
func (b *rowBuffers) fill(rows []gpuexec.Row) *batch {
	for i, r := range rows {
		b.token[i], b.pos[i], b.seqID[i] = r.Token, r.Pos, int32(r.Seq)
		b.logits[i] = 0
		if r.Logits {
			b.logits[i] = 1
		}
	}
	b.header[0].NTokens = int32(len(rows))
	return &b.header[0]
}

// checkRows enforces the rules of Step before the library sees a row. length gives
// the tokens that a sequence holds; seen is scratch with one element per slot.
// It returns gpuexec.ErrBadBatch, or ErrNoRoom when a sequence would outgrow its
// context.
func checkRows(phase gpuexec.Phase, rows []gpuexec.Row, lim gpuexec.Limits, length []int, seen []bool) error {
	bad := func(i int, format string, args ...any) error {
		return fmt.Errorf("%w: row %d: %s", gpuexec.ErrBadBatch, i, fmt.Sprintf(format, args...))
	}
	if len(rows) == 0 {
		return fmt.Errorf("%w: no rows", gpuexec.ErrBadBatch)
	}
	if phase != gpuexec.PhasePrefill && phase != gpuexec.PhaseDecode {
		return fmt.Errorf("%w: phase %d is unknown", gpuexec.ErrBadBatch, phase)
	}
	if len(rows) > lim.BatchRows || phase == gpuexec.PhasePrefill && len(rows) > gpuexec.BlockTokens {
		return fmt.Errorf("%w: %d rows are more than one call takes", gpuexec.ErrBadBatch, len(rows))
	}
	clear(seen)
	full := -1
	for i, r := range rows {
		if r.Seq < 0 || int(r.Seq) >= lim.Slots {
			return bad(i, "sequence %d is outside 0..%d", r.Seq, lim.Slots-1)
		}
		if r.Token < 0 || int(r.Token) >= lim.Vocab {
			return bad(i, "token %d is outside 0..%d", r.Token, lim.Vocab-1)
		}
		want := length[r.Seq]
		if phase == gpuexec.PhasePrefill {
			if r.Seq != rows[0].Seq {
				return bad(i, "a prefill call holds one sequence, found %d and %d", rows[0].Seq, r.Seq)
			}
			want += i
		} else if seen[r.Seq] {
			return bad(i, "a decode call holds one row per sequence, sequence %d has two", r.Seq)
		}
		seen[r.Seq] = true
		if int(r.Pos) != want {
			return bad(i, "position %d leaves a gap: sequence %d continues at %d", r.Pos, r.Seq, want)
		}
		if want >= lim.Context {
			full = int(r.Seq)
		}
	}
	// A step that ran over a block's end would compute other bytes than the two
	// steps of another executor, and break the promise of bit-equal blocks.
	if start := int(rows[0].Pos); phase == gpuexec.PhasePrefill && start%gpuexec.BlockTokens+len(rows) > gpuexec.BlockTokens {
		return fmt.Errorf("%w: prefill of positions %d..%d crosses a block boundary", gpuexec.ErrBadBatch, start, start+len(rows)-1)
	}
	if full >= 0 {
		return fmt.Errorf("%w: sequence %d would exceed its context of %d tokens", gpuexec.ErrNoRoom, full, lim.Context)
	}
	return nil
}
