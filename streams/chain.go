package streams

// Chain orders acknowledgements behind publishes within one Step. It is a run of
// publishes and what waits behind them; the chains of a Step are linked, and one
// lets go only after all before it did.
//
//	Step:  P P A A P A      (P publish, A acknowledge)
//	       [--c1--][c2 ]    c1.next = c2
//
// Start with NewChain, call Publish and Ack in the order of the Step's outputs,
// then Settle with every outcome on the chain that Publish returned.
type Chain[A any] struct {
	left   int // publishes without an outcome
	first  bool
	failed bool // a publish of this or an earlier chain was given up
	acks   []A
	next   *Chain[A]
}

// NewChain returns the first chain of a Step.
func NewChain[A any]() *Chain[A] { return &Chain[A]{first: true} }

// Publish takes note of one more publish and returns the chain that it belongs to.
func (c *Chain[A]) Publish() *Chain[A] {
	if len(c.acks) > 0 {
		c.next = &Chain[A]{}
		c = c.next
	}
	c.left++
	return c
}

// Ack lets a wait for all publishes so far.
func (c *Chain[A]) Ack(a A) { c.acks = append(c.acks, a) }

// Settle takes note of the outcome of one publish and passes on what is through;
// failed says that a publish before it was given up.
func (c *Chain[A]) Settle(failed bool, done func(a A, failed bool)) {
	c.left--
	c.failed = c.failed || failed
	c.Advance(done)
}

// Advance passes on what waits for nothing any more. Call it once on the first
// chain when the Step's outputs are all in.
func (c *Chain[A]) Advance(done func(a A, failed bool)) {
	for c != nil && c.first && c.left == 0 {
		for _, a := range c.acks {
			done(a, c.failed)
		}
		c.acks = nil
		if c.next != nil {
			c.next.first = true
			c.next.failed = c.next.failed || c.failed
		}
		c = c.next
	}
}

// Waits reports whether an acknowledgement waits in this chain or a later one.
func (c *Chain[A]) Waits() bool {
	for ; c != nil; c = c.next {
		if len(c.acks) > 0 {
			return true
		}
	}
	return false
}
