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
			block := (*[q8GroupBlock]byte)(w[b*q8GroupBlock:])
			sum := dotQ8((*[q8GroupBlock - 2*lanes]byte)(block[2*lanes:]), (*[qBlock]int16)(q[(t*blocks+b)*qBlock:]))
			scale := d[t*blocks+b]
			for r := range sum {
				wd := gguf.HalfToFloat(binary.LittleEndian.Uint16(block[2*r:]))
				acc[r] += float32(float32(sum[r]) * float32(wd*scale))
			}
		}
		copy(y[t*stride:], acc[:])
	}
}

// dotQ8 multiplies one block of 8 rows with a token. Two rows share one 64-bit
// multiplication: their weights, made unsigned by adding 128, stand 32 bits apart,
// and no sum over 32 columns reaches 2^31.
func dotQ8(w *[q8GroupBlock - 2*lanes]byte, x *[qBlock]int16) (sum [lanes]int32) {
	const unsign, pair = 0x8080808080808080, 0x000000FF000000FF
	var a0, a1, a2, a3, total int64
	for c := 0; c < qBlock; c += 4 {
		x0, x1, x2, x3 := int64(x[c]), int64(x[c+1]), int64(x[c+2]), int64(x[c+3])
		total += x0 + x1 + x2 + x3
		v := (*[4 * lanes]byte)(w[c*lanes:])
		u := binary.LittleEndian.Uint64(v[0:]) ^ unsign
		a0 += int64(u&pair)*x0 + int64(u>>8&pair)*x1 + int64(u>>16&pair)*x2 + int64(u>>24&pair)*x3
		u = binary.LittleEndian.Uint64(v[8:]) ^ unsign
		a1 += int64(u&pair)*x0 + int64(u>>8&pair)*x1 + int64(u>>16&pair)*x2 + int64(u>>24&pair)*x3
		u = binary.LittleEndian.Uint64(v[16:]) ^ unsign
		a2 += int64(u&pair)*x0 + int64(u>>8&pair)*x1 + int64(u>>16&pair)*x2 + int64(u>>24&pair)*x3
		u = binary.LittleEndian.Uint64(v[24:]) ^ unsign
		a3 += int64(u&pair)*x0 + int64(u>>8&pair)*x1 + int64(u>>16&pair)*x2 + int64(u>>24&pair)*x3
	}
	added := int32(128 * total)
	for i, a := range [lanes / 2]int64{a0, a1, a2, a3} {
		low := int32(a)
		sum[slotRow[2*i]] = low - added
		sum[slotRow[2*i+1]] = int32((a-int64(low))>>32) - added
	}
	return sum
}

// mulFloatScalar multiplies all groups of a float32 matrix with one token: the sum
// of a row runs over the columns in order.
func mulFloatScalar(y, w, x []float32) {
	for g := 0; g < len(y); g += lanes {
		sum := (*[lanes]float32)(y[g:])
		clear(sum[:])
		addScaled(sum, x, w[g*len(x):(g+lanes)*len(x)], lanes)
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
	for t := 0; t < blockTokens; t += lanes {
		part := (*[lanes]float32)(s[t:])
		clear(part[:])
		addScaled(part, query, keys[t:], blockTokens)
	}
}

// weighScalar adds p[t] times the values of token t to out, token after token.
func weighScalar(out, p, values []float32) {
	width, e := len(out), 0
	for ; e+lanes <= width; e += lanes {
		if len(p) > 0 {
			addScaled((*[lanes]float32)(out[e:]), p, values[e:], width)
		}
	}
	for ; e < width; e++ {
		for t, w := range p {
			out[e] += float32(w * values[t*width+e])
		}
	}
}

// addScaled adds factor[i] times the 8 elements of rows[i*stride:] to sum, i in
// order.
func addScaled(sum *[lanes]float32, factor, rows []float32, stride int) {
	s0, s1, s2, s3, s4, s5, s6, s7 := sum[0], sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], sum[7]
	for i, f := range factor {
		r := (*[lanes]float32)(rows[i*stride:])
		s0 += float32(f * r[0])
		s1 += float32(f * r[1])
		s2 += float32(f * r[2])
		s3 += float32(f * r[3])
		s4 += float32(f * r[4])
		s5 += float32(f * r[5])
		s6 += float32(f * r[6])
		s7 += float32(f * r[7])
	}
	*sum = [lanes]float32{s0, s1, s2, s3, s4, s5, s6, s7}
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
