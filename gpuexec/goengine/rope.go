package goengine

import "math"

// rope turns pairs of neighbouring elements by an angle that grows with the
// position (the NORM kind, which llama.cpp uses for this architecture). Tables are
// made per 64 positions when they are first reached.
type rope struct {
	pairs  int
	step   float32   // ratio of the angles of two neighbouring pairs
	div    []float32 // optional divisors per pair
	tables [][]float32
}

func newRope(m *model) rope {
	// llama.cpp multiplies float32 angles step by step; following it keeps logits
	// close at large positions.
	step := float32(math.Pow(float64(m.ropeBase), -2/float64(m.rotary)))
	return rope{pairs: m.rotary / 2, step: step, div: m.ropeDiv}
}

// at is the table of a position: cosine and sine, pair after pair.
func (r *rope) at(pos int) []float32 {
	n := 2 * r.pairs
	for len(r.tables) <= pos/blockTokens {
		first := len(r.tables) * blockTokens
		t := make([]float32, blockTokens*n)
		for i := range blockTokens {
			r.fill(t[i*n:(i+1)*n], first+i)
		}
		r.tables = append(r.tables, t)
	}
	i := pos % blockTokens
	return r.tables[pos/blockTokens][i*n : (i+1)*n]
}

func (r *rope) fill(t []float32, pos int) {
	angle := float32(pos)
	for i := range r.pairs {
		a := angle
		if r.div != nil {
			a /= r.div[i]
		}
		t[2*i], t[2*i+1] = float32(math.Cos(float64(a))), float32(math.Sin(float64(a)))
		angle = float32(angle * r.step)
	}
}

// turn rotates every head of v in place.
func (r *rope) turn(v []float32, headDim int, table []float32) {
	for h := 0; h+headDim <= len(v); h += headDim {
		head := v[h : h+len(table)]
		for i := 0; i+1 < len(table); i += 2 {
			x, y, c, s := head[i], head[i+1], table[i], table[i+1]
			head[i] = float32(x*c) - float32(y*s)
			head[i+1] = float32(x*s) + float32(y*c)
		}
	}
}
