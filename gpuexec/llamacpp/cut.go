package llamacpp

import (
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
)

var _ gpuexec.Cutter = (*Engine)(nil)

// Cut keeps the first n tokens of a sequence; see gpuexec.Cutter. The library frees
// the cells behind them, so what is computed next lies where an import would have
// put it.
func (e *Engine) Cut(seq gpuexec.SeqID, n int) error {
	if !e.valid(seq) || n < 0 || n%gpuexec.BlockTokens != 0 || n > e.lengths[seq] {
		return fmt.Errorf("%w: cut of sequence %d to %d tokens, want a multiple of %d within its length", gpuexec.ErrBadBatch, seq, n, gpuexec.BlockTokens)
	}
	if n == e.lengths[seq] {
		return nil
	}
	e.asked = e.asked[:0]
	if n == 0 {
		e.clearSeq(seq)
		return nil
	}
	if !e.lib.api.seqRemove(e.memory, int32(seq), int32(n), -1) {
		e.clearSeq(seq)
		return fmt.Errorf("%w: this model's memory cannot be cut", gpuexec.ErrUnsupported)
	}
	e.lengths[seq] = n
	return nil
}
