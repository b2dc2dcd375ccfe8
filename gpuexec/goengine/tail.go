package goengine

import (
	"fmt"
	"slices"

	"github.com/weir-dev/weir/gpuexec"
)

var _ gpuexec.Tailer = (*Engine)(nil)

// ExportTail copies the tokens behind the last whole block; see gpuexec.Tailer. What the
// block holds behind them is of whoever used it before, and stays here.
func (e *Engine) ExportTail(seq gpuexec.SeqID, dst []byte) error {
	n := e.Len(seq)
	part := n % blockTokens
	if part == 0 || len(dst) != 4*e.model.blockFloats() {
		return fmt.Errorf("go engine: export of the end of sequence %d with %d tokens into %d bytes: %w", seq, n, len(dst), gpuexec.ErrBadBlock)
	}
	m := &e.model.shape
	from := e.seqs[seq].blocks[n/blockTokens]
	to := make(block, len(from))
	for layer := range m.layers {
		for head := range m.kvHeads {
			k, toK := m.keys(from, layer, head), m.keys(to, layer, head)
			for at := 0; at < len(k); at += blockTokens {
				copy(toK[at:at+part], k[at:at+part])
			}
			copy(m.values(to, layer, head), m.values(from, layer, head)[:part*m.headDim])
		}
	}
	copy(dst, to.asBytes())
	return nil
}

// ImportTail fills an empty sequence with blocks and n tokens of one more.
func (e *Engine) ImportTail(seq gpuexec.SeqID, src [][]byte, tail []byte, n int) error {
	if n <= 0 || n >= blockTokens {
		return fmt.Errorf("go engine: import of %d tokens behind whole blocks: %w", n, gpuexec.ErrBadBlock)
	}
	if err := e.Import(seq, append(slices.Clone(src), tail)); err != nil {
		return err
	}
	e.seqs[seq].n = len(src)*blockTokens + n
	return nil
}
