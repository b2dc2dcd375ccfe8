package nullengine

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weir-dev/weir/gpuexec"
)

var _ gpuexec.Tailer = (*Engine)(nil)

// ExportTail writes the token ids behind the last whole block; see gpuexec.Tailer.
func (e *Engine) ExportTail(seq gpuexec.SeqID, dst []byte) error {
	n := e.Len(seq)
	if n%gpuexec.BlockTokens == 0 || len(dst) != blockBytes {
		return fmt.Errorf("export of the end of sequence %d with %d tokens into %d bytes: %w", seq, n, len(dst), gpuexec.ErrBadBlock)
	}
	clear(dst)
	for i, token := range e.slots[seq][n-n%gpuexec.BlockTokens:] {
		binary.LittleEndian.PutUint32(dst[4*i:], uint32(token))
	}
	return nil
}

// ImportTail fills an empty sequence with blocks and n tokens of one more.
func (e *Engine) ImportTail(seq gpuexec.SeqID, src [][]byte, tail []byte, n int) error {
	if n <= 0 || n >= gpuexec.BlockTokens || e.sight != nil {
		return fmt.Errorf("import of %d tokens behind whole blocks: %w", n, gpuexec.ErrBadBlock)
	}
	if err := e.Import(seq, append(slices.Clone(src), tail)); err != nil {
		return err
	}
	e.slots[seq] = e.slots[seq][:len(src)*gpuexec.BlockTokens+n]
	return nil
}
