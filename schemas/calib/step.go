package calib

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Chunk is a piece of one prompt that one rank computes in a prefill step.
type Chunk struct {
	Tokens int // new tokens
	Prefix int // tokens of the same prompt before them
}

// PrefillStep is the time of one prefill step, derated. ranks holds the chunks of each
// data-parallel rank; ranks without work may be left out.
//
// With n the new tokens of the fullest rank, N those of all ranks and S the largest
// sum over one rank of tokens·(prefix + tokens/2), the closed form of the file is
//
//	T = max(floor, a·n) + c·S + m0 + m1·N
//
// Below the closed form's range (n < range.n[0]) the file's grid of measured sums is
// interpolated instead: the launch floor of small steps is not linear. Its rows hold n
// tokens on every rank; a step with fewer tokens on the other ranks costs no less than
// its fullest rank, so it is taken as such.
func (c *Calibration) PrefillStep(ranks ...[]Chunk) (time.Duration, error) {
	var n, total, s float64
	prefix := 0.0
	for _, chunks := range ranks {
		var tokens, sum float64
		for _, k := range chunks {
			if k.Tokens < 0 || k.Prefix < 0 {
				return 0, fmt.Errorf("%w: a chunk of %d tokens behind %d", ErrRange, k.Tokens, k.Prefix)
			}
			tokens += float64(k.Tokens)
			sum += float64(k.Tokens) * (float64(k.Prefix) + float64(k.Tokens)/2)
			prefix = max(prefix, float64(k.Prefix))
		}
		total += tokens
		n, s = max(n, tokens), max(s, sum)
	}
	if n == 0 {
		return 0, nil
	}
	if len(ranks) > c.Layout.AttnDP {
		return 0, fmt.Errorf("%w: %d ranks, the worker has %d", ErrRange, len(ranks), c.Layout.AttnDP)
	}
	r := c.Range
	if !c.Extrapolate && (r.N[1] > 0 && n > r.N[1] || r.Prefix[1] > 0 && prefix > r.Prefix[1]) {
		return 0, fmt.Errorf("%w: %s: prefill of %.0f tokens behind %.0f, the file covers up to %.0f behind %.0f",
			ErrRange, c.ID, n, prefix, r.N[1], r.Prefix[1])
	}
	k := c.Prefill.Coef
	ms := max(k.Floor, k.A*n) + k.C*s + k.M0 + k.M1*total
	if n < r.N[0] && len(c.Prefill.Grid) > 0 {
		// The context that the step attends to, as one prefix of the fullest rank.
		ms = c.grid(n, max(0, s/n-n/2))
	}
	return milliseconds(ms / c.Derate), nil
}

// grid interpolates the measured sums: linear in tokens and in prefix between the
// four rows around the point, and held at the edges.
func (c *Calibration) grid(n, prefix float64) float64 {
	ns := c.axis(0)
	ps := c.axis(1)
	n0, n1, fn := around(ns, n)
	p0, p1, fp := around(ps, prefix)
	at := func(n, p float64) float64 {
		for _, r := range c.Prefill.Grid {
			if r[0] == n && r[1] == p {
				return r[2]
			}
		}
		// The grid has a hole there: the closed form stands in.
		k := c.Prefill.Coef
		return max(k.Floor, k.A*n) + k.C*n*(p+n/2) + k.M0 + k.M1*n*float64(c.Layout.AttnDP)
	}
	low := at(n0, p0)*(1-fp) + at(n0, p1)*fp
	high := at(n1, p0)*(1-fp) + at(n1, p1)*fp
	return low*(1-fn) + high*fn
}

func (c *Calibration) axis(i int) (out []float64) {
	for _, r := range c.Prefill.Grid {
		if !slices.Contains(out, r[i]) {
			out = append(out, r[i])
		}
	}
	slices.Sort(out)
	return out
}

// around returns the values of a sorted axis on both sides of x and how far x lies
// between them, 0 to 1.
func around(axis []float64, x float64) (lo, hi, f float64) {
	i, exact := slices.BinarySearch(axis, x)
	switch {
	case exact:
		return axis[i], axis[i], 0
	case i == 0:
		return axis[0], axis[0], 0
	case i == len(axis):
		return axis[i-1], axis[i-1], 0
	}
	lo, hi = axis[i-1], axis[i]
	return lo, hi, (x - lo) / (hi - lo)
}

// DecodeStep is the time of one decode step, derated, with b requests and k context
// tokens of all of them together on the worker: T(b) + k_ctx·k. A step yields Spec.AL
// tokens per request.
func (c *Calibration) DecodeStep(b int, k float64) (time.Duration, error) {
	if b <= 0 {
		return 0, nil
	}
	if !c.Extrapolate && (b > c.Decode.MaxB || c.Range.K[1] > 0 && k > c.Range.K[1]) || k < 0 {
		return 0, fmt.Errorf("%w: %s: decode of %d requests over %.0f context tokens, the file covers %d over %.0f",
			ErrRange, c.ID, b, k, c.Decode.MaxB, c.Range.K[1])
	}
	return milliseconds((c.base(float64(b)) + c.Decode.KCtx*k) / c.Derate), nil
}

// base is T(b), linear between the points and beyond the last one.
func (c *Calibration) base(b float64) float64 {
	g, ms := c.Decode.GridB, c.Decode.MS
	i, _ := slices.BinarySearch(g, b)
	i = min(max(i, 1), len(g)-1)
	return ms[i-1] + (ms[i]-ms[i-1])*(b-g[i-1])/(g[i]-g[i-1])
}

// DecodeRun is the time of n steps from a state of b requests over k context tokens
// on, in closed form: each step adds AL tokens to each request's context.
//
//	Σ_{i<n} T(b) + k_ctx·(k + i·AL·b) = n·(T(b) + k_ctx·k) + k_ctx·AL·b·n·(n−1)/2
func (c *Calibration) DecodeRun(b int, k float64, n int) (time.Duration, error) {
	if b <= 0 || n <= 0 {
		return 0, nil
	}
	growth := c.Spec.AL * float64(b)
	if _, err := c.DecodeStep(b, k+growth*float64(n-1)); err != nil {
		return 0, err
	}
	steps := float64(n)
	ms := steps*(c.base(float64(b))+c.Decode.KCtx*k) + c.Decode.KCtx*growth*steps*(steps-1)/2
	return milliseconds(ms / c.Derate), nil
}

// StepsWithin is the largest n for which DecodeRun(b, k, n) takes at most d.
func (c *Calibration) StepsWithin(b int, k float64, d time.Duration) int {
	if b <= 0 || d <= 0 {
		return 0
	}
	// a·n² + e·n = d, in milliseconds before derating.
	a := c.Decode.KCtx * c.Spec.AL * float64(b) / 2
	e := c.base(float64(b)) + c.Decode.KCtx*k - a
	t := float64(d) / 1e6 * c.Derate
	n := t / e
	if a > 0 {
		n = (math.Sqrt(e*e+4*a*t) - e) / (2 * a)
	}
	return int(n + 1e-9)
}
