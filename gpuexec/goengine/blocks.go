package goengine

import (
	"fmt"
	"unsafe"

	"github.com/weir-dev/weir/gpuexec"
)

const blockTokens = gpuexec.BlockTokens

// A KV block is one slice of float32, layer after layer:
//
//	layer { keys:   kvHeads × headDim × 64 tokens
//	        values: kvHeads × 64 tokens × headDim }
//
// Keys lie element by element so that a query meets 8 tokens per register.
type block []float32

// keys is the part of one layer and KV head.
func (s *shape) keys(b block, layer, head int) []float32 {
	n := s.headDim * blockTokens
	at := (layer*2*s.kvHeads + head) * n
	return b[at : at+n : at+n]
}

// values is the part of one layer and KV head.
func (s *shape) values(b block, layer, head int) []float32 {
	n := s.headDim * blockTokens
	at := ((layer*2+1)*s.kvHeads + head) * n
	return b[at : at+n : at+n]
}

// blockFloats is the number of elements of a block.
func (s *shape) blockFloats() int { return s.layers * 2 * s.kvWidth() * blockTokens }

// asBytes views a block as its bytes, in the machine's byte order (little endian
// on every platform that weir is built for). The view shares memory with b.
func (b block) asBytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData([]float32(b)))), 4*len(b))
}

// pool hands out blocks up to a bound and reuses returned ones. A reused block
// keeps its old content: nothing reads beyond a sequence's length.
type pool struct {
	free        []block
	made, limit int
	floats      int
}

func (p *pool) available() int { return p.limit - p.made + len(p.free) }

// get needs available() > 0.
func (p *pool) get() block {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	p.made++
	return make(block, p.floats)
}

func (p *pool) put(b ...block) { p.free = append(p.free, b...) }

// Export copies whole blocks into dst. Errors wrap gpuexec.ErrBadBlock.
func (e *Engine) Export(seq gpuexec.SeqID, first int, dst [][]byte) error {
	n := e.Len(seq)
	if first < 0 || first > n || (first+len(dst))*blockTokens > n {
		return fmt.Errorf("go engine: export of blocks %d to %d of sequence %d, which holds %d tokens: %w", first, first+len(dst)-1, seq, n, gpuexec.ErrBadBlock)
	}
	size := 4 * e.model.blockFloats()
	for _, d := range dst {
		if len(d) != size {
			return fmt.Errorf("go engine: export into %d bytes, a block has %d: %w", len(d), size, gpuexec.ErrBadBlock)
		}
	}
	for i, d := range dst {
		copy(d, e.seqs[seq].blocks[first+i].asBytes())
	}
	return nil
}

// Import fills an empty sequence with blocks that an equal engine exported. Errors
// wrap gpuexec.ErrBadBatch (sequence), ErrBadBlock (size) or ErrNoRoom.
func (e *Engine) Import(seq gpuexec.SeqID, src [][]byte) error {
	if seq < 0 || int(seq) >= len(e.seqs) || e.seqs[seq].n != 0 {
		return fmt.Errorf("go engine: import into sequence %d, want an empty one of %d: %w", seq, len(e.seqs), gpuexec.ErrBadBatch)
	}
	if len(src)*blockTokens > e.context || len(src) > e.pool.available() {
		return fmt.Errorf("go engine: import of %d blocks, context %d tokens, %d blocks free: %w", len(src), e.context, e.pool.available(), gpuexec.ErrNoRoom)
	}
	size := 4 * e.model.blockFloats()
	for i, b := range src {
		if len(b) != size {
			return fmt.Errorf("go engine: block %d has %d bytes, want %d: %w", i, len(b), size, gpuexec.ErrBadBlock)
		}
	}
	s := &e.seqs[seq]
	for _, b := range src {
		own := e.pool.get()
		copy(own.asBytes(), b)
		s.blocks = append(s.blocks, own)
	}
	s.n = len(src) * blockTokens
	return nil
}
