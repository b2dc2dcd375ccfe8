package goengine

import (
	"github.com/weir-dev/weir/gpuexec/gguf"
)

// Rows are packed in groups of lanes, so that one vector register holds the same
// column of all rows of a group and no sum ever crosses lanes.
//
//	Q8_0 group, per block of 32 columns (272 bytes):
//	  8 × float16 scale | 8 × { rows 0 1 4 5, 4 columns each | rows 2 3 6 7 }
//	F32 group, per column: 8 × float32
//
// The row order inside the Q8_0 half-groups is what a pairwise add of two
// registers (VPHADDD) turns into 0…7.
const (
	lanes        = 8
	qBlock       = gguf.QBlock
	q8FileBlock  = 2 + qBlock
	q8GroupBlock = lanes * q8FileBlock
)

// slotRow is the row of each 4-column slot of a packed half-group pair.
var slotRow = [lanes]int{0, 1, 4, 5, 2, 3, 6, 7}

// matrix is a packed weight matrix; one of q8 and f32 is set.
type matrix struct {
	rows, cols int
	q8         []byte
	f32        []float32
}

// stride is the distance of two tokens' outputs: rows rounded up to whole groups.
func (m *matrix) stride() int { return roundUp(m.rows) }

func roundUp(n int) int { return (n + lanes - 1) / lanes * lanes }

// packQ8 repacks a Q8_0 tensor. Missing rows of the last group are zeros.
func packQ8(t *gguf.Tensor) matrix {
	m := matrix{rows: t.Rows(), cols: t.Cols()}
	perRow := m.cols / qBlock
	m.q8 = make([]byte, m.stride()*perRow*q8FileBlock)
	for r := range m.rows {
		row := t.Data[r*perRow*q8FileBlock:]
		group := m.q8[r/lanes*perRow*q8GroupBlock:]
		lane, slot := r%lanes, 0
		for slotRow[slot] != lane {
			slot++
		}
		for b := range perRow {
			src, dst := row[b*q8FileBlock:(b+1)*q8FileBlock], group[b*q8GroupBlock:(b+1)*q8GroupBlock]
			copy(dst[2*lane:2*lane+2], src)
			for c := 0; c < qBlock; c += 4 {
				copy(dst[2*lanes+c*lanes+4*slot:][:4], src[2+c:])
			}
		}
	}
	return m
}

// packFloat repacks rows × cols float32 numbers.
func packFloat(x []float32, cols, rows int) matrix {
	m := matrix{rows: rows, cols: cols}
	m.f32 = make([]float32, m.stride()*cols)
	for r := range rows {
		group := m.f32[r/lanes*cols*lanes:]
		for c, v := range x[r*cols : (r+1)*cols] {
			group[c*lanes+r%lanes] = v
		}
	}
	return m
}

// batch is the input of matrix products: n tokens of cols elements each.
type batch struct {
	n, cols int
	x       []float32
	q       []int16   // x in units of d, rounded; valid when quantised
	d       []float32 // scale per block of 32
	ready   bool      // q and d hold x
}

func (b *batch) reset(n, cols int) {
	b.n, b.cols, b.ready = n, cols, false
	b.x = grow(b.x, n*cols)
}

// row is token i's elements.
func (b *batch) row(i int) []float32 { return b.x[i*b.cols : (i+1)*b.cols] }

// grow returns a slice of n elements, reusing s where it is large enough.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// quantise fills q and d. Both engines quantise activations alike, so that logits
// stay close to llama.cpp's.
func (b *batch) quantise(k *kernels) {
	if b.ready {
		return
	}
	b.q, b.d = grow(b.q, b.n*b.cols), grow(b.d, b.n*b.cols/qBlock)
	k.quantise(b.q, b.d, b.x[:b.n*b.cols])
	b.ready = true
}

// mul computes y[t*stride+r] = row r · token t for all tokens of the batch. y has
// n × stride elements; those of missing rows become 0.
func (m *matrix) mul(k *kernels, y []float32, in *batch) {
	stride := m.stride()
	if m.q8 == nil {
		for t := range in.n {
			k.mulFloat(y[t*stride:(t+1)*stride], m.f32, in.row(t))
		}
		return
	}
	in.quantise(k)
	perGroup := m.cols / qBlock * q8GroupBlock
	for g := range stride / lanes {
		k.mulQ8(y[g*lanes:], stride, m.q8[g*perGroup:(g+1)*perGroup], in.q, in.d, in.n)
	}
}
