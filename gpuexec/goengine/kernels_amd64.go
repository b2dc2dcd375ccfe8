package goengine

import "math"

// The assembly kernels; matrix_amd64.s and vector_amd64.s say what they compute.

//go:noescape
func q8x4(y *float32, stride int, w *byte, q *int16, d *float32, blocks int)

//go:noescape
func q8x1(y *float32, w *byte, q *int16, d *float32, blocks int)

//go:noescape
func f32x4(y, w, x *float32, cols int)

//go:noescape
func f32x1(y, w, x *float32, cols int)

//go:noescape
func softmaxAVX2(s *float32, groups int) float32

//go:noescape
func swigluAVX2(gate, up *float32, groups int)

//go:noescape
func quantiseAVX2(q *int16, d, x *float32, blocks int)

//go:noescape
func scoresAVX2(s, query, keys *float32, n int)

//go:noescape
func weigh64(out, p, values *float32, n, stride int)

//go:noescape
func weigh32(out, p, values *float32, n, stride int)

//go:noescape
func weigh8(out, p, values *float32, n, stride int)

func cpuid(leaf, sub uint32) (a, b, c, d uint32)

func xgetbv() uint32

// table holds the constants of vector_amd64.s, one per register, in its order. Only
// assembly reads it.
//
//lint:ignore U1000 vector_amd64.s reads it
var table = spread(expLow, expHigh, log2e, roundMagic, ln2High, ln2Low, expC0, expC1, expC2, expC3, expC4, expC5, 1,
	math.Float32frombits(magicBits-127), math.Float32frombits(1<<31-1), math.Float32frombits(1<<31), quantTiny, 127, math.Float32frombits(magicBits))

//lint:ignore U1000 length of table
const tableRows = 19

//lint:ignore U1000 makes table
func spread(rows ...float32) (t [tableRows][lanes]float32) {
	for i, v := range rows {
		for j := range t[i] {
			t[i][j] = v
		}
	}
	return t
}

// bestKernels are the fastest ones of this processor.
func bestKernels() *kernels {
	if !hasAVX2() {
		return scalarKernels()
	}
	return &kernels{
		name: "AVX2", mulQ8: mulQ8AVX2, mulFloat: mulFloatAVX2, quantise: quantiseBlocks,
		scores: scoresBlock, weigh: weighBlock, softmax: softmaxRow, swiglu: swigluRow,
	}
}

// hasAVX2 reports AVX2 and F16C, and that the operating system saves the registers.
func hasAVX2() bool {
	most, _, _, _ := cpuid(0, 0)
	if most < 7 {
		return false
	}
	const osxsave, avx, f16c = 1 << 27, 1 << 28, 1 << 29
	if _, _, c, _ := cpuid(1, 0); c&(osxsave|avx|f16c) != osxsave|avx|f16c {
		return false
	}
	const xmmAndYmm = 6
	if xgetbv()&xmmAndYmm != xmmAndYmm {
		return false
	}
	const avx2 = 1 << 5
	_, b, _, _ := cpuid(7, 0)
	return b&avx2 != 0
}

func mulQ8AVX2(y []float32, stride int, w []byte, q []int16, d []float32, n int) {
	blocks := len(w) / q8GroupBlock
	t := 0
	for ; t+4 <= n; t += 4 {
		_ = y[(t+3)*stride+lanes-1]
		q8x4(&y[t*stride], stride, &w[0], &q[t*blocks*qBlock], &d[t*blocks], blocks)
	}
	for ; t < n; t++ {
		_ = y[t*stride+lanes-1]
		q8x1(&y[t*stride], &w[0], &q[t*blocks*qBlock], &d[t*blocks], blocks)
	}
}

func mulFloatAVX2(y, w, x []float32) {
	g, cols := 0, len(x)
	for ; g+4*lanes <= len(y); g += 4 * lanes {
		f32x4(&y[g], &w[g*cols], &x[0], cols)
	}
	for ; g < len(y); g += lanes {
		f32x1(&y[g], &w[g*cols], &x[0], cols)
	}
}

func quantiseBlocks(q []int16, d, x []float32) { quantiseAVX2(&q[0], &d[0], &x[0], len(d)) }

func scoresBlock(s, query, keys []float32) {
	_ = s[blockTokens-1]
	scoresAVX2(&s[0], &query[0], &keys[0], len(query))
}

func weighBlock(out, p, values []float32) {
	n, width := len(p), len(out)
	if n == 0 || width%lanes != 0 {
		weighScalar(out, p, values)
		return
	}
	e := 0
	for ; e+64 <= width; e += 64 {
		weigh64(&out[e], &p[0], &values[e], n, width)
	}
	for ; e+32 <= width; e += 32 {
		weigh32(&out[e], &p[0], &values[e], n, width)
	}
	for ; e < width; e += lanes {
		weigh8(&out[e], &p[0], &values[e], n, width)
	}
}

func softmaxRow(s []float32) float32 { return softmaxAVX2(&s[0], len(s)/lanes) }

func swigluRow(gate, up []float32) {
	whole := len(gate) / lanes * lanes
	if whole > 0 {
		swigluAVX2(&gate[0], &up[0], whole/lanes)
	}
	swigluScalar(gate[whole:], up[whole:])
}
