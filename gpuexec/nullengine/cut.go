package nullengine

import (
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
)

var _ gpuexec.Cutter = (*Engine)(nil)

// Cut keeps the first n tokens of a sequence; see gpuexec.Cutter.
func (e *Engine) Cut(seq gpuexec.SeqID, n int) error {
	if n < 0 || n%gpuexec.BlockTokens != 0 || n > e.Len(seq) {
		return fmt.Errorf("null engine: cut of sequence %d to %d tokens: %w", seq, n, gpuexec.ErrBadBatch)
	}
	if n < e.Len(seq) {
		e.slots[seq] = e.slots[seq][:n]
	}
	return nil
}
