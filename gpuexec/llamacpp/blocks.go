package llamacpp

import (
	"encoding/binary"
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
)

// Export copies whole blocks of seq; see gpuexec.StepEngine. With one stream per
// sequence the library can only write a whole sequence, so the cost grows with
// Len(seq), not with len(dst): export many blocks in one call.
func (e *Engine) Export(seq gpuexec.SeqID, first int, dst [][]byte) error {
	if !e.valid(seq) {
		return fmt.Errorf("%w: sequence %d is outside 0..%d", gpuexec.ErrBadBlock, seq, e.limits.Slots-1)
	}
	n := e.lengths[seq]
	if first < 0 || first > n/gpuexec.BlockTokens || len(dst) > n/gpuexec.BlockTokens-first {
		return fmt.Errorf("%w: blocks %d..%d of sequence %d, which holds %d tokens (%d whole blocks)",
			gpuexec.ErrBadBlock, first, first+len(dst)-1, seq, n, n/gpuexec.BlockTokens)
	}
	return e.export(seq, n, first, dst)
}

// export copies blocks of a sequence of n tokens; the last one may be filled in part.
func (e *Engine) export(seq gpuexec.SeqID, n, first int, dst [][]byte) error {
	if err := e.checkSizes(dst); err != nil {
		return err
	}
	if len(dst) == 0 {
		return nil
	}
	state, err := e.readState(seq)
	if err != nil {
		return err
	}
	start, err := e.layout.locate(state, n)
	if err != nil {
		return err
	}
	e.layout.copyBlocks(state[start:], n, first, dst, fromState)
	return nil
}

// Import fills the empty sequence seq with blocks; see gpuexec.StepEngine. A block
// of another size never reaches the library.
func (e *Engine) Import(seq gpuexec.SeqID, src [][]byte) error {
	if !e.valid(seq) {
		return fmt.Errorf("%w: sequence %d is outside 0..%d", gpuexec.ErrBadBlock, seq, e.limits.Slots-1)
	}
	if e.lengths[seq] != 0 {
		return fmt.Errorf("%w: sequence %d holds %d tokens; drop it before an import", gpuexec.ErrBadBlock, seq, e.lengths[seq])
	}
	if err := e.checkSizes(src); err != nil {
		return err
	}
	return e.fill(seq, len(src)*gpuexec.BlockTokens, src)
}

// fill imports n tokens; the last block may be filled in part.
func (e *Engine) fill(seq gpuexec.SeqID, n int, src [][]byte) error {
	if n > e.limits.Context {
		return fmt.Errorf("%w: %d tokens of blocks exceed the context of %d", gpuexec.ErrNoRoom, n, e.limits.Context)
	}
	if n == 0 {
		return nil
	}
	state, err := e.scratch.grow(e.layout.stateBytes(n))
	if err != nil {
		return err
	}
	e.layout.writeHeader(state, seq, n)
	e.layout.copyBlocks(state[e.layout.dataStart(0, n):], n, 0, src, toState)
	e.asked = e.asked[:0]
	if got := e.call.importState(e.context, state, int32(seq)); got != len(state) {
		e.clearSeq(seq)
		return fmt.Errorf("%w: the library read %d of %d bytes: %s", gpuexec.ErrBadBlock, got, len(state), e.lib.logs.reason())
	}
	e.lengths[seq] = n
	return nil
}

func (e *Engine) checkSizes(blocks [][]byte) error {
	for i, b := range blocks {
		if len(b) != e.limits.BlockBytes {
			return fmt.Errorf("%w: block %d of the call has %d bytes, this engine's have %d", gpuexec.ErrBadBlock, i, len(b), e.limits.BlockBytes)
		}
	}
	return nil
}

// readState exports a whole sequence to scratch memory, valid until the next use.
func (e *Engine) readState(seq gpuexec.SeqID) ([]byte, error) {
	state, err := e.scratch.grow(e.layout.stateBytes(e.lengths[seq]))
	if err != nil {
		return nil, err
	}
	if got := e.call.exportState(e.context, state, int32(seq)); got != len(state) {
		return nil, fmt.Errorf("%w: the library wrote %d of %d bytes of sequence %d: %s",
			gpuexec.ErrBadBlock, got, len(state), seq, e.lib.logs.reason())
	}
	return state, nil
}

// locate finds the K rows of layer 0 in an exported state of n tokens and checks
// that it has this layout and positions 0..n-1 in order: blocks are cut by row
// number, so a cell out of order would give wrong blocks.
func (l *layout) locate(state []byte, n int) (int, error) {
	le := binary.LittleEndian
	bad := func(what string) (int, error) {
		return 0, fmt.Errorf("%w: exported state has %s", gpuexec.ErrBadBlock, what)
	}
	if len(state) != l.stateBytes(n) || le.Uint32(state) != stateMagic || int(le.Uint32(state[8:])) != l.streams {
		return bad("another header than at start")
	}
	empty := 0
	for empty < l.streams-1 && le.Uint32(state[12+4*empty:]) == 0 {
		empty++
	}
	at := 12 + 4*empty
	if int(le.Uint32(state[at:])) != n {
		return bad("another number of cells")
	}
	cells := state[at+4 : at+4+n*cellBytes]
	for i := range n {
		if int(le.Uint32(cells[i*cellBytes:])) != i || le.Uint32(cells[i*cellBytes+4:]) != 1 {
			return bad("cells out of order")
		}
	}
	return l.dataStart(empty, n), nil
}

// direction of a copy between a state and blocks.
type direction bool

const (
	fromState direction = false
	toState   direction = true
)

// copyBlocks copies between the K and V bytes of a state of n tokens (data begins
// at the K rows of layer 0) and the blocks first, first+1, ….
//
// It walks from the last layer to the first. The library writes and reads a state
// front to back, so this way the part it touched last is read first, and the part
// it will read first is written last: both are still in the processor's cache.
func (l *layout) copyBlocks(data []byte, n, first int, blocks [][]byte, dir direction) {
	const rows = gpuexec.BlockTokens
	at, off := n*l.tokenBytes()+(len(l.k)+len(l.v)-1)*layerHeaderBytes, l.blockBytes()
	for i := len(l.v) - 1; i >= 0; i-- {
		row, el := l.v[i].rowBytes, l.v[i].el
		at -= n * row
		off -= rows * row
		if !l.vTrans {
			copyRuns(data[at:at+n*row], first*rows*row, rows*row, blocks, off, dir)
		}
		for c := range l.v[i].cols { // no columns unless transposed
			column := data[at+c*n*el : at+(c+1)*n*el]
			copyRuns(column, first*rows*el, rows*el, blocks, off+c*rows*el, dir)
		}
		at -= layerHeaderBytes
	}
	for i := len(l.k) - 1; i >= 0; i-- {
		row := l.k[i].rowBytes
		at -= n * row
		off -= rows * row
		copyRuns(data[at:at+n*row], first*rows*row, rows*row, blocks, off, dir)
		at -= layerHeaderBytes
	}
}

// copyRuns copies runs of size bytes, the first one at from in part, to or from
// offset off of each block. The last run ends where part does.
func copyRuns(part []byte, from, size int, blocks [][]byte, off int, dir direction) {
	for i, b := range blocks {
		run := part[from+i*size : min(from+(i+1)*size, len(part))]
		if dir == fromState {
			copy(b[off:off+size], run)
		} else {
			copy(run, b[off:off+size])
		}
	}
}
