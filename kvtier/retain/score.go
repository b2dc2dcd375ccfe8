package retain

import (
	"math"

	"github.com/weir-dev/weir/kvtier"
)

// Class is kvtier's class of a branch: idle or waiting.
type Class = kvtier.Class

// The classes that Score gives.
const (
	ClassIdle    = kvtier.ClassIdle
	ClassWaiting = kvtier.ClassWaiting
)

// Score ranks the waiting or running branch w: idle when nothing like it ever lasted as
// long, else waiting with a score, which falls as the wait outlasts what was expected; of two waiting branches the
// one with the higher score is kept. The score is the number of hits per second
// that a block of the branch is worth (see outlook). Scores change with time: ask
// again every second.
//
// Costs and sizes cancel out: all blocks of a branch are hit together or not at
// all, so hits per second and block do not depend on how many they are, and what
// a block costs to compute anew is nearly the same anywhere in a context.
func (e *Estimator) Score(now int64, w *Wait) (Class, float64) {
	e.lapse(now, w)
	o := e.outlook(now, w)
	if r := e.taken(now, w); r > o.rate {
		return ClassWaiting, r
	}
	if o.rate == 0 {
		return ClassIdle, 0
	}
	return ClassWaiting, o.rate
}

// taken is the rate of the hit at the beginning of w's turn: a turn that may still
// be in the queue reads its blocks when an engine takes it. Waits in a queue are
// taken as exponential, so the chance that it is still there falls with its age.
func (e *Estimator) taken(now int64, w *Wait) float64 {
	if !w.Running || !(e.queue > 0) {
		return 0
	}
	return math.Exp(-max(seconds(w.Began, now), 0)/e.queue) / e.queue
}

// overdue is how many times what was expected a wait lasts until it counts as one
// that never ends, as long as it does not: nobody says of branches that are given up
// that they are, and waits that are still open would otherwise not be seen at all.
// With 4 branches that are inferred and never come back stay in memory for so long
// that plain LRU does better on generated churn; with 1 the recorded sessions lose.
const overdue = 2

// lapse counts w as never ending when it is overdue, once.
func (e *Estimator) lapse(now int64, w *Wait) {
	m := e.branches.find(branchKey{w.Tenant, w.Session, w.Branch})
	if w.Running || m == nil || !m.wait.set || m.wait.lapsed {
		return
	}
	a := &m.wait
	if seconds(a.began, now) > overdue*shortest*math.Exp(float64(a.mood+1)*moodWidth) {
		a.lapsed = true
		e.shapes[a.tool.kind][a.mood].add(math.Inf(1), shapeForget)
		e.cells.use(cellKey{a.tool, a.mood}).add(math.Inf(1), cellForget)
	}
}

// Remaining is how long w is expected to wait still, in ns (the median, 0 when it
// is not expected back), and the chance that it comes back at all.
func (e *Estimator) Remaining(now int64, w *Wait) (ns int64, returns float64) {
	o := e.outlook(now, w)
	return int64((o.median + e.queue) * 1e9), o.returns
}

func (e *Estimator) outlook(now int64, w *Wait) outlook {
	a := e.armed(w)
	shape := &e.shapes[a.tool.kind][a.mood]
	guess := &e.guesses[a.mood]
	var b blend
	if c := e.cells.find(cellKey{a.tool, a.mood}); c != nil {
		b.add(c, 1/c.weight)
	}
	coarse := shapePrior / (shape.count() + guessPrior)
	if shape.weight > 0 {
		b.add(shape, coarse/shape.weight)
	}
	b.add(guess, coarse*guessPrior/guess.sum)
	return b.outlook(max(seconds(a.began, now), 0), e.queue)
}

// armed returns what was predicted when w began, or what would be now.
func (e *Estimator) armed(w *Wait) armed {
	if m := e.branches.find(branchKey{w.Tenant, w.Session, w.Branch}); m != nil {
		a := m.wait
		if w.Running {
			a = m.run
		}
		if a.set && a.tool == toolOf(w) {
			a.began = w.Began
			return a
		}
	}
	return e.predict(w)
}

// recency is the exponent of waits over the recorded sessions as a power law: the
// share that lasts longer than t falls about as t^-0.7 between 10 s and 10 min.
const recency = 0.7

// Recency is the score of a branch whose tenant is at LevelLRU: it falls with the
// time since the last use and with nothing else, on the scale of Score.
func (e *Estimator) Recency(now int64, w *Wait) (Class, float64) {
	return ClassWaiting, recency / (max(seconds(w.Began, now), 0) + 1)
}
