package llamacpp

import (
	"encoding/binary"
	"fmt"

	"github.com/weir-dev/weir/gpuexec"
)

// The state of one sequence, as llama_state_seq_get_data_ext writes it for plain
// attention (little endian, llama.cpp v0.4.0 and v0.5.0):
//
//	magic u32, sequence id u32, n_stream u32
//	n_stream times: cell_count u32; for the one stream that is not empty:
//	  cell_count x { pos i32, n_seq_id u32 = 1, sequence id i32 }
//	  v_trans u32, n_layer u32
//	  n_layer x { k_type i32, k_row u64, cell_count rows of k_row bytes }
//	  v_trans = 0: n_layer x { v_type i32, v_row u64, cell_count rows }
//	  v_trans = 1: n_layer x { v_type i32, el u32, n_embd u32, n_embd columns of cell_count x el bytes }
//
// A block holds the same bytes without any header, so that its size is fixed and
// its content does not depend on slot or sequence:
//
//	n_layer x { 64 K rows }, n_layer x { 64 V rows }               v_trans = 0
//	n_layer x { 64 K rows }, n_layer x { n_embd columns of 64 el } v_trans = 1
const (
	stateMagic = 0xaf143cd8
	// cellBytes is the size of one cell record: pos, n_seq_id = 1, sequence id.
	cellBytes = 12
	// layerHeaderBytes precedes the K rows of a layer, and the V rows or columns:
	// the three kinds of header have one size.
	layerHeaderBytes = 12
	// maxStreams and maxStateLayers bound what a parsed header may claim.
	maxStreams     = 4096
	maxStateLayers = 4096
	maxRowBytes    = 1 << 32
	maxElBytes     = 64
)

// layerLayout is the shape of K or V of one layer.
type layerLayout struct {
	kind     int32 // ggml type
	rowBytes int   // bytes per token
	el, cols int   // v_trans = 1: bytes of an element, number of columns; else 0
}

// layout is what all states of one engine have in common.
type layout struct {
	streams int
	vTrans  bool
	k, v    []layerLayout
}

// tokenBytes is the K and V bytes of one token.
func (l *layout) tokenBytes() int {
	n := 0
	for i := range l.k {
		n += l.k[i].rowBytes + l.v[i].rowBytes
	}
	return n
}

// blockBytes is the size of one exported block.
func (l *layout) blockBytes() int { return gpuexec.BlockTokens * l.tokenBytes() }

// stateBytes is the size of the state of a sequence of n ≥ 1 tokens.
func (l *layout) stateBytes(n int) int {
	return 12 + 4*l.streams + n*cellBytes + 8 +
		2*len(l.k)*layerHeaderBytes + n*l.tokenBytes()
}

// reader walks over a state. After the first overrun it yields zeros and stays
// failed, so that parsing code needs one check at the end of each part.
type reader struct {
	buf    []byte
	at     int
	failed bool
}

func (r *reader) skip(n int) int {
	at := r.at
	if n < 0 || n > len(r.buf)-r.at {
		r.failed = true
		return at
	}
	r.at += n
	return at
}

func (r *reader) u32() int {
	at := r.skip(4)
	if r.failed {
		return 0
	}
	return int(binary.LittleEndian.Uint32(r.buf[at:]))
}

func (r *reader) u64() int {
	at := r.skip(8)
	if r.failed {
		return 0
	}
	// A false claim stays too large for any buffer, without overflow in products.
	return int(min(binary.LittleEndian.Uint64(r.buf[at:]), maxRowBytes))
}

// parseLayout reads the state of a sequence of n ≥ 1 tokens at positions 0..n-1.
// The error names the first thing that differs from the layout above.
func parseLayout(state []byte, n int) (layout, error) {
	var l layout
	r := &reader{buf: state}
	if magic := r.u32(); magic != stateMagic {
		return l, fmt.Errorf("magic %#x instead of %#x", magic, stateMagic)
	}
	r.u32() // sequence id
	l.streams = r.u32()
	if l.streams < 1 || l.streams > maxStreams {
		return l, fmt.Errorf("%d streams", l.streams)
	}
	left := l.streams - 1
	count := r.u32()
	for ; count == 0 && left > 0; left-- {
		count = r.u32()
	}
	if count != n {
		return l, fmt.Errorf("%d cells for %d tokens", count, n)
	}
	for i := range n {
		pos, ids := r.u32(), r.u32()
		r.u32() // sequence id
		if pos != i || ids != 1 {
			return l, fmt.Errorf("cell %d has position %d and %d sequences, not a plain cell", i, pos, ids)
		}
	}
	if err := l.parseLayers(r, n); err != nil {
		return l, err
	}
	for range left {
		if c := r.u32(); c != 0 {
			return l, fmt.Errorf("a second stream with %d cells", c)
		}
	}
	if r.failed || r.at != len(state) {
		return l, fmt.Errorf("%d of %d bytes understood", r.at, len(state))
	}
	return l, nil
}

// parseLayers reads the part of the stream that holds cells.
func (l *layout) parseLayers(r *reader, n int) error {
	vTrans, layers := r.u32(), r.u32()
	if vTrans > 1 || layers < 1 || layers > maxStateLayers {
		return fmt.Errorf("v_trans %d with %d layers", vTrans, layers)
	}
	l.vTrans = vTrans == 1
	for i := range layers {
		k := layerLayout{kind: int32(r.u32()), rowBytes: r.u64()}
		r.skip(n * k.rowBytes)
		if r.failed || k.rowBytes == 0 {
			return fmt.Errorf("k of layer %d does not fit", i)
		}
		l.k = append(l.k, k)
	}
	for i := range layers {
		v := layerLayout{kind: int32(r.u32())}
		if l.vTrans {
			v.el, v.cols = r.u32(), r.u32()
			if v.el > maxElBytes {
				return fmt.Errorf("v of layer %d has elements of %d bytes", i, v.el)
			}
			v.rowBytes = v.el * v.cols
		} else {
			v.rowBytes = r.u64()
		}
		r.skip(n * v.rowBytes)
		if r.failed || v.rowBytes == 0 {
			return fmt.Errorf("v of layer %d does not fit", i)
		}
		l.v = append(l.v, v)
	}
	return nil
}

// writeHeader writes everything of a state that is not K or V bytes, for n tokens
// of sequence seq, and leaves the K and V bytes as they are. The filled stream is
// written first: on import its place does not matter.
func (l *layout) writeHeader(state []byte, seq gpuexec.SeqID, n int) {
	at := 0
	u32 := func(v uint32) {
		binary.LittleEndian.PutUint32(state[at:], v)
		at += 4
	}
	u32(stateMagic)
	u32(uint32(seq))
	u32(uint32(l.streams))
	u32(uint32(n))
	for i := range n {
		u32(uint32(i))
		u32(1)
		u32(uint32(seq))
	}
	if l.vTrans {
		u32(1)
	} else {
		u32(0)
	}
	u32(uint32(len(l.k)))
	for i := range l.k {
		u32(uint32(l.k[i].kind))
		binary.LittleEndian.PutUint64(state[at:], uint64(l.k[i].rowBytes))
		at += 8 + n*l.k[i].rowBytes
	}
	for i := range l.v {
		u32(uint32(l.v[i].kind))
		if l.vTrans {
			u32(uint32(l.v[i].el))
			u32(uint32(l.v[i].cols))
		} else {
			binary.LittleEndian.PutUint64(state[at:], uint64(l.v[i].rowBytes))
			at += 8
		}
		at += n * l.v[i].rowBytes
	}
	for range l.streams - 1 {
		u32(0)
	}
}

// dataStart is the offset of the first layer's K rows in an exported state. Empty
// streams may stand before the filled one (export) or after it (import).
func (l *layout) dataStart(emptyBefore, n int) int {
	return 12 + 4*(emptyBefore+1) + n*cellBytes + 8 + layerHeaderBytes
}
