package sampling

import (
	"errors"
	"fmt"
	"math"
)

// ErrNoCandidate: every token is forbidden (-Inf or NaN), so none can be sampled.
var ErrNoCandidate = errors.New("sampling: no token is allowed")

// ErrLogits: the number of logits differs from the vocabulary given to New.
var ErrLogits = errors.New("sampling: wrong number of logits")

// Sampler samples the tokens of one turn. It belongs to one goroutine.
type Sampler struct {
	params  Params
	vocab   int
	scratch *Scratch
	bias    []bias
	seen    []seen        // tokens that a penalty may touch
	where   map[int32]int // token → index in seen
}

type bias struct {
	token int32
	value float64
	saved float32 // the logit while Next has replaced it
}

type seen struct {
	token     int32
	generated int32 // how often it was generated; 0: prompt only
	saved     float32
}

// New makes a sampler for a vocabulary of vocab tokens. prompt is used by the
// repetition penalty only and not retained. scratch may be nil; samplers of one
// goroutine should share one. The error wraps ErrParams.
func New(p Params, vocab int, prompt []int32, scratch *Scratch) (*Sampler, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if scratch == nil {
		scratch = &Scratch{}
	}
	s := &Sampler{params: p, vocab: vocab, scratch: scratch}
	for _, id := range sortedKeys(p.LogitBias) {
		if int(id) >= vocab {
			return nil, fmt.Errorf("%w: logit_bias names token %d, the model has %d tokens", ErrParams, id, vocab)
		}
		s.bias = append(s.bias, bias{token: id, value: p.LogitBias[id]})
	}
	if s.penalizes() {
		s.where = make(map[int32]int)
	}
	if s.repeats() {
		for _, id := range prompt {
			s.count(id, 0)
		}
	}
	return s, nil
}

func (s *Sampler) repeats() bool {
	return s.params.RepeatPenalty != 0 && s.params.RepeatPenalty != 1
}

func (s *Sampler) penalizes() bool {
	return s.repeats() || s.params.FrequencyPenalty != 0 || s.params.PresencePenalty != 0
}

// Accept counts a token of the answer, sampled or forced. After the same tokens
// two samplers with equal parameters are equal, so a later attempt rebuilds the
// state by accepting what was delivered.
func (s *Sampler) Accept(token int32) {
	if s.penalizes() {
		s.count(token, 1)
	}
}

func (s *Sampler) count(token, times int32) {
	if token < 0 || int(token) >= s.vocab { // never comes up in logits
		return
	}
	at, ok := s.where[token]
	if !ok {
		at = len(s.seen)
		s.where[token] = at
		s.seen = append(s.seen, seen{token: token})
	}
	s.seen[at].generated += times
}

// Next samples the token with this index (0 is the first generated one). It
// depends on parameters, accepted tokens, index and logits only, and changes
// none of them: logits are modified while it runs and restored before it
// returns. Tokens with a logit of -Inf or NaN are never sampled; equal logits
// rank by id. The caller passes the result to Accept.
func (s *Sampler) Next(index int, logits []float32) (int32, error) {
	if len(logits) != s.vocab {
		return -1, fmt.Errorf("%w: got %d, the vocabulary has %d", ErrLogits, len(logits), s.vocab)
	}
	s.adjust(logits)
	token := s.pick(index, logits)
	s.restore(logits)
	if token < 0 {
		return -1, fmt.Errorf("%w at index %d", ErrNoCandidate, index)
	}
	return token, nil
}

// adjust applies bias and penalties; restore undoes it in reverse order.
func (s *Sampler) adjust(logits []float32) {
	for i := range s.bias {
		b := &s.bias[i]
		b.saved = logits[b.token]
		logits[b.token] = float32(float64(b.saved) + b.value)
	}
	for i := range s.seen {
		e := &s.seen[i]
		e.saved = logits[e.token]
		v := float64(e.saved)
		if s.repeats() { // as in CTRL (arXiv:1909.05858): a positive logit shrinks, a negative one grows
			if v > 0 {
				v /= s.params.RepeatPenalty
			} else {
				v = float64(v * s.params.RepeatPenalty)
			}
		}
		if e.generated > 0 {
			v -= float64(float64(e.generated) * s.params.FrequencyPenalty)
			v -= s.params.PresencePenalty
		}
		logits[e.token] = float32(v)
	}
}

func (s *Sampler) restore(logits []float32) {
	for i := range s.seen {
		logits[s.seen[i].token] = s.seen[i].saved
	}
	for i := range s.bias {
		logits[s.bias[i].token] = s.bias[i].saved
	}
}

// pick returns -1 when every token is forbidden.
func (s *Sampler) pick(index int, logits []float32) int32 {
	best := argmax(logits)
	if best < 0 || s.params.Greedy() {
		return best
	}
	c := s.scratch
	c.gather(logits, logits[best], 1/s.params.Temperature)
	if s.params.TopK > 0 {
		c.keepTop(s.params.TopK)
	}
	mass := c.weigh()
	if s.params.TopP > 0 && s.params.TopP < 1 {
		mass = c.keepMass(s.params.TopP, mass)
	}
	if s.params.MinP > 0 {
		mass = c.keepLikely(s.params.MinP)
	}
	return c.draw(Uniform(s.params.Seed, index), mass)
}

// argmax returns the lowest id with the greatest logit, -1 when there is none.
func argmax(logits []float32) int32 {
	best, at := float32(math.Inf(-1)), int32(-1)
	for id, l := range logits {
		if l > best {
			best, at = l, int32(id)
		}
	}
	return at
}

// gather collects the candidates: tokens near enough to the best one to matter.
func (s *Scratch) gather(logits []float32, best float32, scale float64) {
	if cap(s.ids) < len(logits) {
		s.ids = make([]int32, len(logits))
		s.dist = make([]float64, len(logits))
		s.weight = make([]float64, len(logits))
	}
	s.ids, s.dist = s.ids[:len(logits)], s.dist[:len(logits)]
	n, top := 0, float64(best)
	for id, l := range logits {
		d := float64((top - float64(l)) * scale)
		if l == best {
			d = 0 // also where both are +Inf
		}
		if d <= maxDistance { // false for NaN
			s.ids[n], s.dist[n] = int32(id), d
			n++
		}
	}
	s.ids, s.dist = s.ids[:n], s.dist[:n]
}

// weigh fills the weights and returns their sum.
func (s *Scratch) weigh() float64 {
	s.weight = s.weight[:len(s.dist)]
	mass := 0.0
	for pos, d := range s.dist {
		w := exp(-d)
		s.weight[pos] = w
		mass += w
	}
	return mass
}

// draw walks the candidates in order of id until u of the mass is behind.
func (s *Scratch) draw(u, mass float64) int32 {
	target, sum := float64(u*mass), 0.0
	for pos, w := range s.weight {
		sum += w
		if sum > target {
			return s.ids[pos]
		}
	}
	return s.ids[len(s.ids)-1] // u*mass was rounded up to the sum
}
