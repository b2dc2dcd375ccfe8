package llamacpp

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/grammar"
)

// constraint is a grammar of the library in use by one sequence. It shares the
// engine's candidate memory, hence its goroutine.
type constraint struct {
	engine  *Engine
	sampler uintptr
	failed  error // the grammar became too slow; it stays so
}

// Budgets of one call in processor time. Ambiguous grammars can double the
// library's parse stacks with every character; without an end the engine and every
// sequence in it would stand still. A mask of 150,000 tokens takes some 10 ms, an
// accepted token some microseconds. The library compares stacks pairwise, so the
// call that passes the accept budget may take a few times as long.
const (
	maskBudget   = 500 * time.Millisecond
	acceptBudget = 50 * time.Millisecond
)

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
	if err := grammar.Check(gbnf); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGrammar, err)
	}
	if e.candidates == nil {
		c, err := newCandidates(e.limits.Vocab)
		if err != nil {
			return nil, err
		}
		e.candidates, e.constraints = c, map[*constraint]bool{}
	}
	e.lib.logs.clear()
	s := e.lib.api.samplerGrammar(e.model.vocab, gbnf, "root")
	if s == 0 {
		return nil, fmt.Errorf("%w: the library refuses it (%s); fewer or smaller repetitions such as {m,n} may help", ErrGrammar, e.lib.logs.reason())
	}
	c := &constraint{engine: e, sampler: s}
	e.constraints[c] = true
	return c, nil
}

// Mask sets the logits of forbidden tokens to -Inf. Where nothing is allowed, or
// the grammar became too slow, all of them are -Inf afterwards.
func (c *constraint) Mask(logits []float32) {
	if c.sampler == 0 {
		return
	}
	if c.failed != nil {
		for id := range logits {
			logits[id] = float32(math.Inf(-1))
		}
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
	c.look(n)
	for _, d := range cand.data[:n] {
		if math.IsInf(float64(d.Logit), -1) {
			logits[d.ID] = d.Logit
		}
	}
}

// within runs a call of the library and ends the constraint when the call took
// more than budget of processor time.
func (c *constraint) within(budget time.Duration, call func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadTime()
	call()
	if took := threadTime() - start; took > budget {
		c.failed = fmt.Errorf("%w: it is too ambiguous: one token took %v; let alternatives begin with different characters",
			ErrGrammar, took.Round(time.Millisecond))
	}
}

// look asks the grammar about the first n candidates.
func (c *constraint) look(n int) {
	c.within(maskBudget, func() { c.engine.call.applySampler(c.sampler, c.engine.candidates.set(n)) })
}

// Accept advances the grammar, or ends it when that took too long. A token that the grammar forbids is an error that
// wraps ErrGrammar, and leaves the grammar where it was: the library would throw.
func (c *constraint) Accept(token int32) error {
	if c.sampler == 0 {
		return fmt.Errorf("%w: the constraint is closed", ErrGrammar)
	}
	if token < 0 || int(token) >= c.engine.limits.Vocab {
		return fmt.Errorf("%w: token %d is outside 0..%d", ErrGrammar, token, c.engine.limits.Vocab-1)
	}
	if c.failed != nil {
		return c.failed
	}
	cand := c.engine.candidates
	cand.data[0] = tokenData{ID: token}
	c.look(1)
	if math.IsInf(float64(cand.data[0].Logit), -1) {
		return fmt.Errorf("%w: token %d is not allowed here", ErrGrammar, token)
	}
	c.within(acceptBudget, func() { c.engine.call.acceptToken(c.sampler, token) })
	return c.failed
}

// Close frees the grammar. The engine's Close does so for those left open.
func (c *constraint) Close() {
	if c.sampler != 0 {
		delete(c.engine.constraints, c)
		c.engine.lib.api.samplerFree(c.sampler)
		c.sampler = 0
	}
}
