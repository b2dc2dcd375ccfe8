package admit

import "math/bits"

// pauses learns how long sessions wait between an answer and their next turn, in powers
// of two of a millisecond. Times that were seen lately count most.
type pauses struct {
	seen [32]float64
	all  float64
}

// fewReturns are needed before they tell anything.
const fewReturns = 4

func (p *pauses) note(ns int64) {
	p.all = p.all*fade + 1
	for i := range p.seen {
		p.seen[i] *= fade
	}
	p.seen[min(bits.Len64(uint64(max(0, ns))/1_000_000), len(p.seen)-1)]++
}

// most is the time in nanoseconds that a pause seldom exceeds, one in fifty, within
// bounds: the first that are seen are the short ones.
func (p *pauses) most(least, limit int64) int64 {
	over, i := 0.0, len(p.seen)-1
	for ; i > 0; i-- {
		if over += p.seen[i]; over > p.all/50 {
			break
		}
	}
	return min(max(1_000_000<<i, least), limit)
}

// once learns which sessions do not come back, by how long their first prompt is: in
// powers of two.
type once [24]struct{ back, gone float64 }

func classOf(t Turn) int { return min(bits.Len(uint(max(0, t.Tokens))), len(once{})-1) }

func (o *once) note(class int, back bool) {
	x := &o[class]
	x.back, x.gone = x.back*fade, x.gone*fade
	if back {
		x.back++
	} else {
		x.gone++
	}
}

// is tells that of sessions of a class hardly one in five comes back. Until that is known
// it is taken to be so of short prompts: agents begin with instructions and tools.
func (o *once) is(class int) bool {
	x := o[class]
	if x.back+x.gone < fewReturns {
		return class <= shortClass
	}
	return 4*x.back < x.gone
}

// shortClass is that of prompts below 2,048 tokens.
const shortClass = 11
