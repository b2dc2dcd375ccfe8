package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// TensorType is the ggml type of a tensor's elements.
type TensorType uint32

// The tensor types that weir's own engine computes with. Other ggml types are
// listed by the reader with their size unknown and refused when used.
const (
	F32  TensorType = 0
	F16  TensorType = 1
	Q8_0 TensorType = 8
)

// QBlock is the number of elements of one Q8_0 block: a float16 scale and 32 int8.
const (
	QBlock      = 32
	qBlockBytes = 2 + QBlock
)

// String names the type as llama.cpp does.
func (t TensorType) String() string {
	switch t {
	case F32:
		return "F32"
	case F16:
		return "F16"
	case Q8_0:
		return "Q8_0"
	}
	return fmt.Sprintf("ggml type %d", uint32(t))
}

// Known reports whether this package can size and decode the type.
func (t TensorType) Known() bool { return t == F32 || t == F16 || t == Q8_0 }

// rowBytes is the encoded size of n elements.
func (t TensorType) rowBytes(n uint64) uint64 {
	switch t {
	case F32:
		return 4 * n
	case F16:
		return 2 * n
	}
	return n / QBlock * qBlockBytes
}

// Tensor is one entry of the tensor table.
type Tensor struct {
	Name string
	Dims []int // Dims[0] is the row length; 1 to 4 dimensions
	Type TensorType
	// Data is the encoded content, a part of the file's bytes; nil when the type
	// is not Known.
	Data []byte
}

// Cols is the row length.
func (t *Tensor) Cols() int { return t.Dims[0] }

// Rows is the number of rows: the product of all dimensions but the first.
func (t *Tensor) Rows() int {
	n := 1
	for _, d := range t.Dims[1:] {
		n *= d
	}
	return n
}

// Float32 decodes all elements, row after row. It allocates 4 bytes per element.
// The error wraps ErrUnsupported.
func (t *Tensor) Float32() ([]float32, error) {
	if !t.Type.Known() {
		return nil, fmt.Errorf("tensor %s has type %v: %w", t.Name, t.Type, ErrUnsupported)
	}
	out := make([]float32, t.Rows()*t.Cols())
	decode(out, t.Type, t.Data)
	return out, nil
}

// DecodeRow decodes one row into dst, which has Cols elements. The type must be
// Known and the row exist.
func (t *Tensor) DecodeRow(dst []float32, row int) {
	n := int(t.Type.rowBytes(uint64(t.Cols())))
	decode(dst, t.Type, t.Data[row*n:(row+1)*n])
}

// decode fills out from its encoding in b.
func decode(out []float32, t TensorType, b []byte) {
	le := binary.LittleEndian
	switch t {
	case F32:
		for i := range out {
			out[i] = math.Float32frombits(le.Uint32(b[4*i:]))
		}
	case F16:
		for i := range out {
			out[i] = HalfToFloat(le.Uint16(b[2*i:]))
		}
	case Q8_0:
		for i := range len(out) / QBlock {
			block := b[i*qBlockBytes : (i+1)*qBlockBytes]
			d := HalfToFloat(le.Uint16(block))
			for j, q := range block[2:] {
				out[i*QBlock+j] = d * float32(int8(q))
			}
		}
	}
}

// HalfToFloat widens an IEEE 754 half precision number; exact.
func HalfToFloat(h uint16) float32 {
	s, e, m := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&1023)
	switch e {
	case 0:
		f := float32(m) / (1 << 24)
		if s != 0 {
			f = -f
		}
		return f
	case 31:
		return math.Float32frombits(s | 0x7f800000 | m<<13)
	}
	return math.Float32frombits(s | (e+112)<<23 | m<<13)
}

// FloatToHalf rounds to half precision, to nearest and ties to even, as the
// hardware instruction does; overflow gives an infinity.
func FloatToHalf(f float32) uint16 {
	b := math.Float32bits(f)
	s, m := uint16(b>>16)&0x8000, b&0x7fffff
	e := int32(b>>23&0xff) - 112
	switch {
	case e >= 143: // infinity or NaN of the source
		if m != 0 {
			return s | 0x7e00
		}
		return s | 0x7c00
	case e >= 31:
		return s | 0x7c00
	case e < -10:
		return s
	case e <= 0:
		m |= 0x800000
		return s | uint16(roundShift(m, uint32(14-e)))
	}
	// A carry out of the mantissa moves into the exponent, which is right up to
	// and including the step to infinity.
	return s | uint16(uint32(e)<<10+roundShift(m, 13))
}

// roundShift is m >> n, rounded to nearest, ties to even.
func roundShift(m, n uint32) uint32 {
	r, rest, half := m>>n, m&(1<<n-1), uint32(1)<<(n-1)
	if rest > half || rest == half && r&1 == 1 {
		r++
	}
	return r
}

// encode appends the encoding of x to dst. Q8_0 follows ggml's
// quantize_row_q8_0_ref: d = max|x| / 127, q = round(x / d) half away from zero.
func (t TensorType) encode(dst []byte, x []float32) []byte {
	le := binary.LittleEndian
	switch t {
	case F32:
		for _, v := range x {
			dst = le.AppendUint32(dst, math.Float32bits(v))
		}
	case F16:
		for _, v := range x {
			dst = le.AppendUint16(dst, FloatToHalf(v))
		}
	case Q8_0:
		for ; len(x) >= QBlock; x = x[QBlock:] {
			dst = appendQ8(dst, x[:QBlock])
		}
	}
	return dst
}

func appendQ8(dst []byte, x []float32) []byte {
	var peak float32
	for _, v := range x {
		peak = max(peak, v, -v)
	}
	d := peak / 127
	dst = binary.LittleEndian.AppendUint16(dst, FloatToHalf(d))
	var inv float32
	if d > 0 {
		inv = 1 / d
	}
	for _, v := range x {
		r := float32(v * inv)
		if r < 0 {
			dst = append(dst, byte(int8(r-0.5)))
		} else {
			dst = append(dst, byte(int8(r+0.5)))
		}
	}
	return dst
}
