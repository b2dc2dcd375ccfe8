package goengine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/gguf"
)

// These tests compare the processor's best kernels with the scalar ones, bit by
// bit. On a processor without AVX2 both are the same.

// values are random numbers over a wide range, with zeros and tiny ones among them.
func values(g *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		switch g.IntN(12) {
		case 0:
			out[i] = 0
		case 1:
			out[i] = float32(math.Copysign(math.SmallestNonzeroFloat32*float64(1+g.IntN(1000)), g.NormFloat64()))
		case 2:
			out[i] = float32(g.NormFloat64()) * 1e4
		default:
			out[i] = float32(g.NormFloat64())
		}
	}
	return out
}

func sameBits(t *testing.T, what string, want, got []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			t.Fatalf("%s: element %d of %d is %x (%v), scalar %x (%v)", what, i, len(want), math.Float32bits(got[i]), got[i], math.Float32bits(want[i]), want[i])
		}
	}
}

// weights is a Q8_0 tensor whose int8 and scales are any bits a file may hold, but
// for infinite scales.
func weights(g *rand.Rand, cols, rows int) *gguf.Tensor {
	data := make([]byte, rows*cols/qBlock*q8FileBlock)
	for i := range data {
		data[i] = byte(g.Uint32())
	}
	for b := 0; b < len(data); b += q8FileBlock {
		binary.LittleEndian.PutUint16(data[b:], gguf.FloatToHalf(float32(g.NormFloat64())))
		if g.IntN(8) == 0 {
			data[b], data[b+1] = byte(g.IntN(256)), 0 // subnormal scale
		}
	}
	return &gguf.Tensor{Name: "w", Dims: []int{cols, rows}, Type: gguf.Q8_0, Data: data}
}

func TestMatrixKernelsAgree(t *testing.T) {
	g := rand.New(rand.NewPCG(7, 7))
	scalar, best := scalarKernels(), bestKernels()
	for range 150 {
		cols, rows, n := qBlock*(1+g.IntN(6)), 1+g.IntN(70), 1+g.IntN(10)
		x := values(g, n*cols)
		tensor := weights(g, cols, rows)
		quantised := packQ8(tensor)
		floats, err := tensor.Float32()
		if err != nil {
			t.Fatal(err)
		}
		plain := packFloat(floats, cols, rows)
		for _, m := range []*matrix{&quantised, &plain} {
			want, got := make([]float32, n*m.stride()), make([]float32, n*m.stride())
			m.mul(scalar, want, &batch{n: n, cols: cols, x: x})
			m.mul(best, got, &batch{n: n, cols: cols, x: x})
			sameBits(t, "matrix product", want, got)
			alone := make([]float32, m.stride())
			m.mul(best, alone, &batch{n: 1, cols: cols, x: x[(n-1)*cols:]})
			sameBits(t, "token alone", want[(n-1)*m.stride():], alone)
		}
		checkProduct(t, &quantised, floats, x)
		checkProduct(t, &plain, floats, x)
	}
}

// checkProduct compares with a float64 product: equal kernels could be equally wrong.
func checkProduct(t *testing.T, m *matrix, w, x []float32) {
	t.Helper()
	y := make([]float32, m.stride())
	in := &batch{n: 1, cols: m.cols, x: x}
	m.mul(bestKernels(), y, in)
	for r := range m.rows {
		var want, size float64
		for c := range m.cols {
			v := float64(x[c])
			if m.q8 != nil {
				v = float64(in.d[c/qBlock]) * float64(in.q[c])
			}
			want += v * float64(w[r*m.cols+c])
			size += math.Abs(v * float64(w[r*m.cols+c]))
		}
		if math.Abs(want-float64(y[r])) > 1e-5*size+1e-30 {
			t.Fatalf("row %d of %d × %d is %v, want %v", r, m.rows, m.cols, y[r], want)
		}
	}
}

func TestQuantiseKernelsAgree(t *testing.T) {
	g := rand.New(rand.NewPCG(8, 8))
	scalar, best := scalarKernels(), bestKernels()
	for round := range 400 {
		n := qBlock * (1 + g.IntN(5))
		x := values(g, n)
		scale := float32(math.Pow(10, g.Float64()*60-40))
		for i := range x {
			switch round % 4 {
			case 0:
				x[i] *= scale
			case 1:
				x[i] = float32(g.IntN(255)-127) / 2 // ties of the rounding
			case 2:
				x[i] = 0
			}
		}
		wantQ, gotQ := make([]int16, n), make([]int16, n)
		wantD, gotD := make([]float32, n/qBlock), make([]float32, n/qBlock)
		scalar.quantise(wantQ, wantD, x)
		best.quantise(gotQ, gotD, x)
		sameBits(t, "scale", wantD, gotD)
		for i := range wantQ {
			if wantQ[i] != gotQ[i] || wantQ[i] > 127 || wantQ[i] < -127 {
				t.Fatalf("element %d (%v) is %d, scalar %d", i, x[i], gotQ[i], wantQ[i])
			}
		}
	}
}

func TestAttentionKernelsAgree(t *testing.T) {
	g := rand.New(rand.NewPCG(9, 9))
	scalar, best := scalarKernels(), bestKernels()
	for _, width := range []int{1, 2, 4, 8, 16, 24, 32, 40, 64, 72, 80, 96, 128, 256} {
		for range 20 {
			query, keys := values(g, width), values(g, width*blockTokens)
			want, got := make([]float32, blockTokens), make([]float32, blockTokens)
			scalar.scores(want, query, keys)
			best.scores(got, query, keys)
			sameBits(t, "scores", want, got)

			n := g.IntN(blockTokens + 1)
			p := values(g, n)
			want = values(g, width)
			got = append([]float32(nil), want...)
			scalar.weigh(want, p, keys)
			best.weigh(got, p, keys)
			sameBits(t, "weighted sum", want, got)
		}
	}
	for range 200 {
		n := lanes * (1 + g.IntN(40))
		want := values(g, n)
		for i := n - g.IntN(lanes); i < n; i++ {
			want[i] = float32(math.Inf(-1))
		}
		for i := range want {
			if g.IntN(3) == 0 {
				want[i] *= 100
			}
		}
		got := append([]float32(nil), want...)
		a, b := scalar.softmax(want), best.softmax(got)
		sameBits(t, "softmax", append(want, a), append(got, b))
	}
}

func TestSwiGLUKernelsAgree(t *testing.T) {
	g := rand.New(rand.NewPCG(10, 10))
	scalar, best := scalarKernels(), bestKernels()
	for n := range 100 {
		want, up := values(g, n), values(g, n)
		for i := range want {
			if g.IntN(3) == 0 {
				want[i] = float32(g.NormFloat64()) * 60
			}
		}
		got := append([]float32(nil), want...)
		scalar.swiglu(want, up)
		best.swiglu(got, up)
		sameBits(t, "swiglu", want, got)
	}
}

func TestExp(t *testing.T) {
	for x := float32(-87.3); x < 88.3; x += 0.0137 {
		want := math.Exp(float64(x))
		if got := float64(exp(x)); math.Abs(got-want) > 3e-7*want {
			t.Fatalf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	if exp(-100) != 0 || exp(float32(math.Inf(-1))) != 0 || exp(0) != 1 || math.IsInf(float64(exp(1000)), 0) {
		t.Error("the ends of exp are not as documented")
	}
}

// BenchmarkPrefill and BenchmarkDecode run the default model at 256 tokens of
// context; one operation is four steps of 64 tokens, or one decode step.
func BenchmarkPrefill(b *testing.B) {
	for _, scalar := range []bool{false, true} {
		e := benchEngine(b, 1, scalar)
		b.Run(e.kernels.name, func(b *testing.B) {
			for b.Loop() {
				e.Drop(0)
				fill(b, e, 0, 256)
			}
			b.ReportMetric(256*float64(b.N)/b.Elapsed().Seconds(), "token/s")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		rows   int
		scalar bool
	}{{1, false}, {4, false}, {8, false}, {1, true}} {
		e := benchEngine(b, c.rows, c.scalar)
		b.Run(fmt.Sprintf("%s/rows=%d", e.kernels.name, c.rows), func(b *testing.B) {
			rows := make([]gpuexec.Row, c.rows)
			for b.Loop() {
				for i := range rows {
					seq := gpuexec.SeqID(i)
					if n := e.Len(seq); n == 0 || n == 384 {
						b.StopTimer()
						e.Drop(seq)
						fill(b, e, seq, 256)
						b.StartTimer()
					}
					rows[i] = gpuexec.Row{Seq: seq, Token: 300, Pos: int32(e.Len(seq)), Logits: true}
				}
				if err := e.Step(gpuexec.PhaseDecode, rows); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(c.rows*b.N)/b.Elapsed().Seconds(), "token/s")
		})
	}
}

func benchEngine(b *testing.B, slots int, scalar bool) *Engine {
	b.Helper()
	var buf bytes.Buffer
	if err := gguf.WritePreset(&buf, "small"); err != nil {
		b.Fatal(err)
	}
	f, err := gguf.Parse(buf.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	e, err := New(f, Options{Slots: slots, Context: 512, Scalar: scalar})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

func fill(b *testing.B, e *Engine, seq gpuexec.SeqID, n int) {
	for at := 0; at < n; {
		var rows []gpuexec.Row
		for range blockTokens {
			rows = append(rows, gpuexec.Row{Seq: seq, Token: int32(at % 500), Pos: int32(at), Logits: at == n-1})
			at++
		}
		if err := e.Step(gpuexec.PhasePrefill, rows); err != nil {
			b.Fatal(err)
		}
	}
}
