package baseline

import "math"

// Budget bounds the accelerators that both sides of a pool may have together.
type Budget struct {
	PrefillGPUs, DecodeGPUs int // of one worker
	Min, Max                int // negative switches a bound off
	MinPrefill, MinDecode   int // workers that stay whatever happens
}

// Clamp fits a wish for p prefill and d decode workers into the budget, as
// proportional_clamp_pair of planner/core/budget.py does. (0, 0) means that not even
// the smallest pair fits.
//
// Its rounding decides who gets a worker that only one side wishes for: prefill is
// rounded down and decode gets what is left, so with a full budget one more prefill
// worker alone is never granted, one more decode worker nearly always.
func (b Budget) Clamp(p, d int) (int, int) {
	if b.Min < 0 && b.Max < 0 || b.PrefillGPUs <= 0 || b.DecodeGPUs <= 0 {
		return p, d
	}
	total := p*b.PrefillGPUs + d*b.DecodeGPUs
	tol := 0
	if b.Min >= 0 && b.Max >= 0 {
		tol = max(b.PrefillGPUs, b.DecodeGPUs) // relaxes the floor only
	}
	switch {
	case b.Max >= 0 && total > b.Max:
		return b.shrink(p, total)
	case b.Min >= 0 && total < b.Min-tol:
		return b.grow(p, d, total)
	}
	return p, d
}

func (b Budget) shrink(p, total int) (int, int) {
	if b.MinPrefill*b.PrefillGPUs+b.MinDecode*b.DecodeGPUs > b.Max {
		return 0, 0
	}
	scale := float64(b.Max) / float64(total) // before the product: its rounding is part of the rule
	most := floorDiv(b.Max-b.MinDecode*b.DecodeGPUs, b.PrefillGPUs)
	np := max(b.MinPrefill, min(most, int(math.Floor(float64(p)*scale))))
	nd := max(b.MinDecode, floorDiv(b.Max-np*b.PrefillGPUs, b.DecodeGPUs))
	return np, nd
}

func (b Budget) grow(p, d, total int) (int, int) {
	var np int
	if total <= 0 {
		np = max(b.MinPrefill, int(math.Ceil(float64(b.Min)/2/float64(b.PrefillGPUs))))
	} else {
		np = max(b.MinPrefill, int(math.Ceil(float64(p)*float64(b.Min)/float64(total))))
	}
	nd := max(b.MinDecode, ceilDiv(max(0, b.Min-np*b.PrefillGPUs), b.DecodeGPUs))
	if b.Max >= 0 && np*b.PrefillGPUs+nd*b.DecodeGPUs > b.Max {
		return p, d
	}
	return np, nd
}

func floorDiv(a, b int) int { return int(math.Floor(float64(a) / float64(b))) }

func ceilDiv(a, b int) int { return (a + b - 1) / b }
