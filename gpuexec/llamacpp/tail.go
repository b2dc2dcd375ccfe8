package llamacpp

import (
	"fmt"
	"slices"

	"github.com/weir-dev/weir/gpuexec"
)

var _ gpuexec.Tailer = (*Engine)(nil)

// ExportTail copies the tokens behind the last whole block; see gpuexec.Tailer.
func (e *Engine) ExportTail(seq gpuexec.SeqID, dst []byte) error {
	n := e.Len(seq)
	if n%gpuexec.BlockTokens == 0 {
		return fmt.Errorf("%w: sequence %d holds %d tokens, nothing behind whole blocks", gpuexec.ErrBadBlock, seq, n)
	}
	clear(dst)
	return e.export(seq, n, n/gpuexec.BlockTokens, [][]byte{dst})
}

// ImportTail fills the empty sequence seq with blocks and n tokens of one more.
func (e *Engine) ImportTail(seq gpuexec.SeqID, src [][]byte, tail []byte, n int) error {
	if n <= 0 || n >= gpuexec.BlockTokens {
		return fmt.Errorf("%w: %d tokens behind whole blocks, 1 to %d are possible", gpuexec.ErrBadBlock, n, gpuexec.BlockTokens-1)
	}
	if !e.valid(seq) || e.lengths[seq] != 0 {
		return fmt.Errorf("%w: sequence %d is not an empty one of %d", gpuexec.ErrBadBlock, seq, e.limits.Slots)
	}
	all := append(slices.Clone(src), tail)
	if err := e.checkSizes(all); err != nil {
		return err
	}
	return e.fill(seq, len(src)*gpuexec.BlockTokens+n, all)
}
