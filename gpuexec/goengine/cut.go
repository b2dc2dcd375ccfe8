package goengine

import (
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
)

var _ gpuexec.Cutter = (*Engine)(nil)

// Cut keeps the first n tokens of a sequence; the blocks behind them are used again.
func (e *Engine) Cut(seq gpuexec.SeqID, n int) error {
	if n < 0 || n%blockTokens != 0 || n > e.Len(seq) {
		return fmt.Errorf("go engine: cut of sequence %d to %d tokens: %w", seq, n, gpuexec.ErrBadBatch)
	}
	if n == e.Len(seq) {
		return nil
	}
	s := &e.seqs[seq]
	keep := n / blockTokens
	e.pool.put(s.blocks[keep:]...)
	clear(s.blocks[keep:])
	s.blocks, s.n = s.blocks[:keep], n
	return nil
}
