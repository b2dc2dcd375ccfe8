package llamacpp

import (
	"fmt"
	"math"

	"github.com/weir-dev/weir/gpuexec"
)

// constraint is a grammar of the library in use by one sequence. It shares the
// engine's candidate memory, hence its goroutine.
type constraint struct {
	engine  *Engine
	sampler uintptr
}

var _ gpuexec.Constraint = (*constraint)(nil)

// candidates is memory for the library's candidate array, one per engine.
type candidates struct {
	mem   arena
	array []tokenDataArray // one
	data  []tokenData      // one per token of the vocabulary
}

func newCandidates(vocab int) (*candidates, error) {
	c := &candidates{}
	mem, err := c.mem.grow(64 + vocab*12)
	if err != nil {
		return nil, err
	}
	c.array, mem = carve[tokenDataArray](mem, 1)
	c.data, _ = carve[tokenData](mem, vocab)
	return c, nil
}

// set points the array at the first n candidates.
func (c *candidates) set(n int) []tokenDataArray {
	c.array[0] = tokenDataArray{Data: address(c.data), Size: uintptr(n), Selected: -1}
	return c.array
}

// Constrain compiles a GBNF grammar with root rule "root". The grammar is checked
// in Go first, because some grammars make the library recurse or loop without end.
// Errors wrap ErrGrammar.
func (e *Engine) Constrain(gbnf string) (gpuexec.Constraint, error) {
	if err := checkGBNF(gbnf); err != nil {
		return nil, err
	}
	if e.candidates == nil {
		c, err := newCandidates(e.limits.Vocab)
		if err != nil {
			return nil, err
		}
		e.candidates = c
	}
	e.lib.logs.clear()
	s := e.lib.api.samplerGrammar(e.model.vocab, gbnf, "root")
	if s == 0 {
		return nil, fmt.Errorf("%w: %s", ErrGrammar, e.lib.logs.reason())
	}
	return &constraint{engine: e, sampler: s}, nil
}

// Mask sets the logits of forbidden tokens to -Inf. Where nothing is allowed, all
// of them are -Inf afterwards.
func (c *constraint) Mask(logits []float32) {
	if c.sampler == 0 {
		return
	}
	cand, n := c.engine.candidates, 0
	for id, l := range logits[:min(len(logits), len(cand.data))] {
		// Tokens that others ruled out already need no look at the grammar.
		if !math.IsInf(float64(l), -1) {
			cand.data[n] = tokenData{ID: int32(id), Logit: l}
			n++
		}
	}
	if n == 0 {
		return
	}
	c.engine.call.applySampler(c.sampler, cand.set(n))
	for _, d := range cand.data[:n] {
		if math.IsInf(float64(d.Logit), -1) {
			logits[d.ID] = d.Logit
		}
	}
}

// Accept advances the grammar. A token that the grammar forbids is an error that
// wraps ErrGrammar, and leaves the grammar where it was: the library would throw.
func (c *constraint) Accept(token int32) error {
	if c.sampler == 0 {
		return fmt.Errorf("%w: the constraint is closed", ErrGrammar)
	}
	if token < 0 || int(token) >= c.engine.limits.Vocab {
		return fmt.Errorf("%w: token %d is outside 0..%d", ErrGrammar, token, c.engine.limits.Vocab-1)
	}
	cand := c.engine.candidates
	cand.data[0] = tokenData{ID: token}
	c.engine.call.applySampler(c.sampler, cand.set(1))
	if math.IsInf(float64(cand.data[0].Logit), -1) {
		return fmt.Errorf("%w: token %d is not allowed here", ErrGrammar, token)
	}
	c.engine.call.acceptToken(c.sampler, token)
	return nil
}

// Close frees the grammar. It must happen before the engine closes.
func (c *constraint) Close() {
	if c.sampler != 0 {
		c.engine.lib.api.samplerFree(c.sampler)
		c.sampler = 0
	}
}
