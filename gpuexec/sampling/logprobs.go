package sampling

import (
	"fmt"
	"math"
)

// Logprob is the natural logarithm of a token's probability.
type Logprob struct {
	Token   int32
	Logprob float64
}

// floorLogprob stands for the logarithm of 0, which JSON cannot carry; OpenAI
// reports -9999 for such tokens.
const floorLogprob = -9999

// Logprobs returns the log-probability of token under the model's own
// distribution, before bias, penalties, temperature and cuts (as vLLM reports
// it; a grammar's mask counts when it was applied to logits), and appends the n
// most likely tokens, best first, equal ones by id, to top[:0]. It may be
// called before or after Next with the same logits. n is at most MaxTopLogprobs.
func Logprobs(logits []float32, token int32, n int, top []Logprob) (float64, []Logprob, error) {
	if n < 0 || n > MaxTopLogprobs {
		return 0, nil, fmt.Errorf("%w: top_logprobs is %d, allowed is 0 to %d", ErrParams, n, MaxTopLogprobs)
	}
	if token < 0 || int(token) >= len(logits) {
		return 0, nil, fmt.Errorf("%w: token %d of %d", ErrLogits, token, len(logits))
	}
	best := argmax(logits)
	if best < 0 {
		return 0, nil, ErrNoCandidate
	}
	top, mass, high := top[:0], 0.0, float64(logits[best])
	for id, l := range logits {
		mass += exp(distance(high, l))
		top = insert(top, n, int32(id), l)
	}
	norm := log(mass)
	for i := range top {
		top[i].Logprob = floored(distance(high, float32(top[i].Logprob)) - norm)
	}
	return floored(distance(high, logits[token]) - norm), top, nil
}

// distance is l - high, 0 where both are +Inf.
func distance(high float64, l float32) float64 {
	if float64(l) == high {
		return 0
	}
	return float64(l) - high
}

func floored(v float64) float64 {
	if math.IsNaN(v) || v < floorLogprob {
		return floorLogprob
	}
	return v
}

// insert keeps the n greatest logits, sorted; Logprob holds the raw logit meanwhile.
func insert(top []Logprob, n int, id int32, l float32) []Logprob {
	v := float64(l)
	if n == 0 || math.IsNaN(v) || (len(top) == n && v <= top[n-1].Logprob) {
		return top
	}
	if len(top) < n {
		top = append(top, Logprob{})
	}
	at := len(top) - 1
	for at > 0 && top[at-1].Logprob < v {
		top[at] = top[at-1]
		at--
	}
	top[at] = Logprob{Token: id, Logprob: v}
	return top
}
