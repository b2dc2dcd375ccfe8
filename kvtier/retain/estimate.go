package retain

// Wait is one branch as the estimator sees it: what it waits for and since when.
// The caller fills it from what a tier node knows (a BRANCH message and its own
// table); it is not kept by the estimator.
type Wait struct {
	Tenant, Session, Branch string
	Tool                    string // the tool that it waits for, "" when not known
	User                    bool   // it waits for a user, not for a tool
	Inferred                bool   // nobody said so: lineage inferred it from the answer's end
	// Running: it is in a turn since Began. Its blocks in host memory are read again
	// only when the next turn begins, so it is ranked with the waiting branches by the
	// end of the turn plus the wait after it. Only leased blocks are never evicted.
	Running bool
	Began   int64 // Unix ns since when it waits, or runs
	Hint                    int64  // Unix ns at which the agent expects to go on, 0 for none
	Blocks, Own             int    // blocks of its context; those that no other branch was first to hold
	Turns                   int    // turns of the branch so far
}

// Options are an Estimator's bounds. The zero value is sensible.
type Options struct {
	Sessions int // sessions remembered, least recently used go first; 65,536
	Tools    int // tools remembered, likewise; 4,096
}

// Estimator learns online how long branches wait, and ranks them by it.
type Estimator struct{}

// NewEstimator returns an estimator that has seen nothing.
func NewEstimator(Options) *Estimator { return &Estimator{} }

// Began says that w waits, or runs when w.Running, from now on.
func (e *Estimator) Began(now int64, w *Wait) {}

// Ended says that w was used again: a turn begins. Began with Running follows.
func (e *Estimator) Ended(now int64, w *Wait) {}

// Gone says that w ended without having been used again.
func (e *Estimator) Gone(now int64, w *Wait) {}

// Queue says how long a turn is predicted to wait in the queue, in ns. A branch is
// used again only that much after it resumed.
func (e *Estimator) Queue(ns int64) {}
