package goengine

import (
	"encoding/binary"
	"math"

	"github.com/weir-dev/weir/gpuexec/gguf"
)

// kernels are the inner loops, in one of two bit-equal versions. Slices have the
// lengths that the comments of the scalar versions state; callers guarantee them.
type kernels struct {
	name     string
	mulQ8    func(y []float32, stride int, w []byte, q []int16, d []float32, n int)
	mulFloat func(y, w, x []float32)
	quantise func(q []int16, d, x []float32)
	scores   func(s, query, keys []float32)
	weigh    func(out, p, values []float32)
	softmax  func(s []float32) float32
	swiglu   func(gate, up []float32)
}

// scalarKernels are plain Go: the definition of the arithmetic, and the engine on
// processors without AVX2.
func scalarKernels() *kernels {
	return &kernels{
		name: "scalar", mulQ8: mulQ8Scalar, mulFloat: mulFloatScalar, quantise: quantiseScalar,
		scores: scoresScalar, weigh: weighScalar, softmax: softmaxScalar, swiglu: swigluScalar,
	}
}

// mulQ8Scalar multiplies one group of 8 rows with n tokens: y[t*stride+lane]. Per
// block the integer dot product is exact; then one unfused multiply and add, block
// after block.
func mulQ8Scalar(y []float32, stride int, w []byte, q []int16, d []float32, n int) {
	blocks := len(w) / q8GroupBlock
	for t := range n {
		var acc [lanes]float32
		for b := range blocks {
			x := (*[qBlock]int16)(q[(t*blocks+b)*qBlock:])
			block := (*[q8GroupBlock]byte)(w[b*q8GroupBlock:])
			var sum [lanes]int32
			for c := 0; c < qBlock; c += 4 {
				x0, x1, x2, x3 := int32(x[c]), int32(x[c+1]), int32(x[c+2]), int32(x[c+3])
				for slot, r := range slotRow {
					p := 2*lanes + c*lanes + 4*slot
					sum[r] += int32(int8(block[p]))*x0 + int32(int8(block[p+1]))*x1 + int32(int8(block[p+2]))*x2 + int32(int8(block[p+3]))*x3
				}
			}
			scale := d[t*blocks+b]
			for r := range sum {
				wd := gguf.HalfToFloat(binary.LittleEndian.Uint16(block[2*r:]))
				acc[r] += float32(float32(sum[r]) * float32(wd*scale))
			}
		}
		copy(y[t*stride:], acc[:])
	}
}

// mulFloatScalar multiplies all groups of a float32 matrix with one token: the sum
// of a row runs over the columns in order.
func mulFloatScalar(y, w, x []float32) {
	for g := 0; g < len(y); g += lanes {
		var acc [lanes]float32
		group := w[g*len(x) : (g+lanes)*len(x)]
		for c, v := range x {
			col := (*[lanes]float32)(group[c*lanes:])
			for r := range acc {
				acc[r] += float32(col[r] * v)
			}
		}
		copy(y[g:], acc[:])
	}
}

// roundMagic turns a float32 below 2^22 into the nearest integer (ties to even)
// when added and subtracted again.
const roundMagic = 1.5 * (1 << 23)

// quantTiny is the least peak that is quantised: below it the scale is zero in half
// precision, and 127/peak may overflow.
const quantTiny = 1e-30

// quantiseScalar splits x into blocks of 32: d = max|x|/127 rounded to half
// precision, q = x·127/max|x| rounded to nearest, as ggml's Q8_0 code for x86 does.
func quantiseScalar(q []int16, d, x []float32) {
	for b := range d {
		block := x[b*qBlock : (b+1)*qBlock]
		var peak float32
		for _, v := range block {
			peak = max(peak, v, -v)
		}
		var inv float32
		if peak >= quantTiny {
			inv = 127 / peak
		}
		d[b] = gguf.HalfToFloat(gguf.FloatToHalf(peak / 127))
		for i, v := range block {
			r := float32(float32(v*inv) + roundMagic)
			q[b*qBlock+i] = int16(int32(math.Float32bits(r)) - magicBits)
		}
	}
}

// scoresScalar computes the 64 products of a query with a block's keys, which lie
// element by element: keys[e*64+token]. The sum runs over the elements in order.
func scoresScalar(s, query, keys []float32) {
	s = s[:blockTokens]
	clear(s)
	for e, v := range query {
		for t, k := range keys[e*blockTokens : (e+1)*blockTokens] {
			s[t] += float32(v * k)
		}
	}
}

// weighScalar adds p[t] times the values of token t to out, token after token.
func weighScalar(out, p, values []float32) {
	for t, w := range p {
		for e, v := range values[t*len(out) : (t+1)*len(out)] {
			out[e] += float32(w * v)
		}
	}
}

// softmaxScalar replaces s by exp(s - max s) and returns the sum of those. len(s)
// is a multiple of 8; unused entries are -Inf. Entry i is added to partial sum i
// mod 8, and the partial sums are joined pairwise.
func softmaxScalar(s []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range s {
		top = max(top, v)
	}
	var sum [lanes]float32
	for i, v := range s {
		e := exp(v - top)
		s[i] = e
		sum[i%lanes] += e
	}
	return joinLanes(&sum)
}

func joinLanes(s *[lanes]float32) float32 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// swigluScalar replaces gate by gate / (1 + exp(-gate)) * up.
func swigluScalar(gate, up []float32) {
	for i, g := range gate {
		gate[i] = float32(g/(1+exp(-g))) * up[i]
	}
}

// Constants of exp. The polynomial is the one of Cephes' expf.
const (
	expLow    = -87.3365
	expHigh   = 88.3762
	log2e     = 1.44269504088896341
	ln2High   = 0.693359375
	ln2Low    = -2.12194440e-4
	expC0     = 1.9875691500e-4
	expC1     = 1.3981999507e-3
	expC2     = 8.3334519073e-3
	expC3     = 4.1665795894e-2
	expC4     = 1.6666665459e-1
	expC5     = 5.0000001201e-1
	magicBits = 0x4B400000 // bits of roundMagic
)

// exp is e^x to about 1e-7 relative; 0 below -87.3365, and the value at 88.3762
// above that.
func exp(x float32) float32 {
	if x < expLow {
		return 0
	}
	if x > expHigh {
		x = expHigh
	}
	shifted := float32(x*log2e) + roundMagic
	n := shifted - roundMagic
	r := float32(x-float32(n*ln2High)) - float32(n*ln2Low)
	y := float32(expC0)
	y = float32(y*r) + expC1
	y = float32(y*r) + expC2
	y = float32(y*r) + expC3
	y = float32(y*r) + expC4
	y = float32(y*r) + expC5
	y = float32(float32(y*float32(r*r))+r) + 1
	power := math.Float32frombits(uint32(int32(math.Float32bits(shifted))-magicBits+127) << 23)
	return y * power
}
