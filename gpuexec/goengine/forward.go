package goengine

import (
	"math"

	"github.com/weir-dev/weir/gpuexec"
)

// scratch is the working memory of a step, reused from step to step.
type scratch struct {
	x          []float32 // residual stream, n × dim
	in, mid    batch     // normalised input; attention or feed-forward middle
	q, k, v    []float32
	out        []float32
	gate, up   []float32
	scores     []float32
	queries    []query
	logits     []float32
	wanted     []int // rows whose logits are wanted
	wantedRows []gpuexec.Row
}

// forward computes all rows. Their KV blocks exist already, and every row attends
// to the positions up to its own, so rows do not see each other unless they belong
// to one sequence.
func (e *Engine) forward(rows []gpuexec.Row) {
	m, s := e.model, &e.scratch
	s.x = grow(s.x, len(rows)*m.dim)
	for i, r := range rows {
		m.embed.DecodeRow(s.x[i*m.dim:(i+1)*m.dim], int(r.Token))
	}
	s.wanted = s.wanted[:0]
	for i, r := range rows {
		if r.Logits {
			s.wanted = append(s.wanted, i)
		}
	}
	for l := range m.blocks {
		e.project(l, rows)
		if l == len(m.blocks)-1 {
			// Nothing reads the last layer's output of the other rows.
			if rows = e.narrow(rows); len(rows) == 0 {
				break
			}
		}
		e.attend(l, rows)
		e.feed(l, len(rows))
	}
	e.finish()
}

// narrow keeps the rows whose logits are wanted, in x and q.
func (e *Engine) narrow(rows []gpuexec.Row) []gpuexec.Row {
	m, s := e.model, &e.scratch
	s.wantedRows = s.wantedRows[:0]
	qs := m.blocks[0].q.stride()
	for to, from := range s.wanted {
		s.wantedRows = append(s.wantedRows, rows[from])
		copy(s.x[to*m.dim:(to+1)*m.dim], s.x[from*m.dim:])
		copy(s.q[to*qs:(to+1)*qs], s.q[from*qs:])
	}
	return s.wantedRows
}

// project computes queries, keys and values of layer l and stores the last two.
func (e *Engine) project(l int, rows []gpuexec.Row) {
	m, s, w := e.model, &e.scratch, &e.model.blocks[l]
	n := len(rows)
	e.normalise(&s.in, n, w.normAttn)
	qs, ks := w.q.stride(), w.k.stride()
	s.q, s.k, s.v = grow(s.q, n*qs), grow(s.k, n*ks), grow(s.v, n*ks)
	w.q.mul(e.kernels, s.q, &s.in)
	w.k.mul(e.kernels, s.k, &s.in)
	w.v.mul(e.kernels, s.v, &s.in)
	scale := float32(1 / math.Sqrt(float64(m.headDim)))
	for i, r := range rows {
		table := e.rope.at(int(r.Pos))
		q := s.q[i*qs : i*qs+m.qWidth()]
		e.rope.turn(q, m.headDim, table)
		for j := range q {
			q[j] *= scale
		}
		k := s.k[i*ks : i*ks+m.kvWidth()]
		e.rope.turn(k, m.headDim, table)
		e.store(l, r, k, s.v[i*ks:i*ks+m.kvWidth()])
	}
}

// store writes a token's keys and values of one layer into its block.
func (e *Engine) store(l int, r gpuexec.Row, k, v []float32) {
	m, t := e.model, int(r.Pos)%blockTokens
	b := e.seqs[r.Seq].blocks[int(r.Pos)/blockTokens]
	for h := range m.kvHeads {
		keys := m.keys(b, l, h)
		for i, x := range k[h*m.headDim : (h+1)*m.headDim] {
			keys[i*blockTokens+t] = x
		}
		copy(m.values(b, l, h)[t*m.headDim:(t+1)*m.headDim], v[h*m.headDim:])
	}
}

// feed adds the feed-forward network of layer l to x.
func (e *Engine) feed(l, n int) {
	m, s, w := e.model, &e.scratch, &e.model.blocks[l]
	e.normalise(&s.in, n, w.normFFN)
	stride := w.gate.stride()
	s.gate, s.up = grow(s.gate, n*stride), grow(s.up, n*stride)
	w.gate.mul(e.kernels, s.gate, &s.in)
	w.up.mul(e.kernels, s.up, &s.in)
	e.kernels.swiglu(s.gate, s.up)
	s.mid.reset(n, m.ffn)
	for i := range n {
		copy(s.mid.row(i), s.gate[i*stride:])
	}
	os := w.down.stride()
	s.out = grow(s.out, n*os)
	w.down.mul(e.kernels, s.out, &s.mid)
	e.addOut(n, os)
}

// addOut adds out, whose tokens are stride apart, to the residual stream.
func (e *Engine) addOut(n, stride int) {
	m, s := e.model, &e.scratch
	for i := range n {
		x, o := s.x[i*m.dim:(i+1)*m.dim], s.out[i*stride:]
		for j := range x {
			x[j] += o[j]
		}
	}
}

// finish computes the wanted logits.
func (e *Engine) finish() {
	m, s := e.model, &e.scratch
	e.logits = e.logits[:0]
	for range e.rows {
		e.logits = append(e.logits, nil)
	}
	n := len(s.wanted)
	if n == 0 {
		return
	}
	e.normalise(&s.in, n, m.normOut)
	stride := m.output.stride()
	s.logits = grow(s.logits, n*stride)
	m.output.mul(e.kernels, s.logits, &s.in)
	for i, row := range s.wanted {
		e.logits[row] = s.logits[i*stride : i*stride+m.vocab : i*stride+m.vocab]
	}
}

// normalise fills in with the root-mean-square norm of the first n tokens of x. The
// squares are summed in float64, where each is exact, in four interleaved parts.
func (e *Engine) normalise(in *batch, n int, weight []float32) {
	m := e.model
	in.reset(n, m.dim)
	for i := range n {
		x, y := e.scratch.x[i*m.dim:(i+1)*m.dim], in.row(i)
		var part [4]float64
		for j, v := range x {
			part[j&3] += float64(v) * float64(v)
		}
		mean := float32(((part[0] + part[2]) + (part[1] + part[3])) / float64(len(x)))
		scale := 1 / float32(math.Sqrt(float64(mean+m.eps)))
		for j, v := range x {
			y[j] = float32(v*scale) * weight[j]
		}
	}
}
