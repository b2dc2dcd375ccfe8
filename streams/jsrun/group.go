package jsrun

// group is a run of publishes in one Step and the inputs whose acknowledgement
// stands behind them. The groups of a Step form a chain: acknowledgements of one
// wait for its own publishes and for all groups before it.
//
//	Step:  P P A A P A      (P publish, A acknowledge)
//	       [--g1--][g2 ]    g1.next = g2
type group struct {
	left   int  // publishes not settled
	first  bool // all groups before it are done
	failed bool // a publish of this or an earlier group was given up
	acks   []ackRef
	next   *group
}

// ackRef names an input message in hand.
type ackRef struct {
	in  *input
	seq uint64
}

// settled takes note of one publish of the group and passes acknowledgements on
// to done as far as the chain is through.
func (g *group) settled(failed bool, done func(ackRef, bool)) {
	g.left--
	g.failed = g.failed || failed
	g.advance(done)
}

// advance walks the chain from g as far as it is through.
func (g *group) advance(done func(ackRef, bool)) {
	for g != nil && g.first && g.left == 0 {
		for _, a := range g.acks {
			done(a, g.failed)
		}
		g.acks = nil
		if g.next != nil {
			g.next.first = true
			g.next.failed = g.next.failed || g.failed
		}
		g = g.next
	}
}
