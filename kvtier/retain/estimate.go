package retain

import "math"

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
	Running     bool
	Began       int64 // Unix ns since when it waits, or runs
	Hint        int64 // Unix ns at which the agent expects to go on, 0 for none
	Blocks, Own int   // blocks of its context; those that no other branch was first to hold
	Turns       int   // turns of the branch so far
}

// Options are an Estimator's bounds. The zero value is sensible.
type Options struct {
	Sessions int // sessions, and branches, remembered; least recently used go first; 65,536 of 100 and 200 bytes
	Tools    int // tools remembered, counted per tenant, likewise; 4,096 of 100 bytes
	Cells    int // histograms of tools, likewise; 4,096 of 700 bytes
}

// The constants of the estimator. Those without a source were chosen on the
// odd-numbered sessions of the recorded traces, where the result is flat around
// them: half or double changes the share of the gap that is closed by less than
// 0.01.
const (
	moodWidth = 0.3 // of a mood, in natural logarithms: waits expected within 35 % are alike
	moods     = 49  // from 50 ms to a day

	sessionPrior = 1    // entries that "like the others" is worth in a session's pace
	slowForget   = 0.95 // a session's pace is the mean of its last 20 waits
	fastForget   = 0.6  // and of its last 2.5
	toolPrior    = 3    // entries that the kind is worth in a tool's mean
	toolForget   = 0.99 // a tool's mean is over 100 waits
	kindForget   = 0.999
	shapePrior   = 5      // entries that the kind's distribution is worth below the tool's
	guessPrior   = 3      // entries that a lognormal guess is worth below the kind's
	cellForget   = 0.998  // distributions: the last 500 waits of a tool,
	shapeForget  = 0.9998 // the last 5,000 of a kind
	shortest     = 0.05   // seconds; shorter waits are alike

	// guessP90 is p90 over the median of a wait whose median is known: between the
	// 7 to 8 of tools and the 12 of users over all sessions (recorded coding sessions)
	// and the 3.6 of one tool (sigma 1).
	guessP90   = 5
	guessNever = 0.02
)

// kind is what a branch waits for. Each has distributions of its own.
type kind uint8

const (
	kindTool   kind = iota
	kindUser        // a user's next message
	kindRun         // the end of a turn and the wait after it
	kindHinted      // what the agent announced a time for
	kinds
)

// kindSeed is how long each kind takes before anything was seen: the medians of
// the recorded coding sessions in seconds, tool 9, user 125, and a turn of 6 in
// front of a tool.
var kindSeed = [kinds]float64{kindTool: 9, kindUser: 125, kindRun: 15, kindHinted: 9}

const kindSeedWeight = 5

type (
	sessionKey struct{ tenant, session string }
	branchKey  struct{ tenant, session, branch string }
	// toolKey names what waits are told apart by. A tenant's words count for itself
	// only: one that calls slow tools by the names of fast ones fools itself.
	toolKey struct {
		tenant, tool string
		kind         kind
		hint         int8 // band of the announced wait, kindHinted only
	}
	cellKey struct {
		tool toolKey
		mood uint8
	}
)

// mean is a fading mean of logarithms.
type mean struct{ sum, n float64 }

func (m *mean) add(x, forget float64) { m.sum, m.n = m.sum*forget+x, m.n*forget+1 }

// toward is the mean, pulled toward x as if n entries of it had been seen.
func (m *mean) toward(x, n float64) float64 { return (m.sum + n*x) / (m.n + n) }

// pace is how much longer than others a session's branches take.
type pace struct{ slow, fast mean }

func (p *pace) add(x float64) {
	p.slow.add(x, slowForget)
	p.fast.add(x, fastForget)
}

func (p *pace) now() float64 {
	return (p.slow.toward(0, sessionPrior) + p.fast.toward(0, sessionPrior)) / 2
}

// session is what is known of one: the pace of its waits and of its turns.
type session struct{ waits, runs pace }

// armed is a prediction that waits for its outcome.
type armed struct {
	set    bool
	tool   toolKey
	mood   uint8
	began  int64
	lapsed bool    // it is counted as never ending
	base   float64 // what the tool alone would have made expect, in logarithms
}

// memory is what is open of a branch: the wait that it is in, and the time from
// one turn's beginning to the next.
type memory struct{ wait, run armed }

// Estimator learns online how long branches wait, and ranks them by it.
//
// A wait's logarithm is expected to be
//
//	mean of the tool (or kind) + pace of the session
//
// each a fading mean that is pulled toward the coarser one while little was seen.
// Waits of one kind that are expected to be about as long share a mood, and each
// mood has a histogram of how long its waits turned out to be, which answers what
// an expectation cannot: how heavy the tail is, how many never come back, what is
// left when some time has passed. A tool's own histogram stands before its kind's.
//
// A time that the agent announced is not believed but used as a tool's name: waits
// of a tenant that were announced as about as long share a mean and a histogram,
// so that an announcement is worth what it turned out to be worth.
type Estimator struct {
	means    [kinds]mean
	shapes   [kinds][moods]hist
	guesses  [moods]hist
	tools    *recent[toolKey, mean]
	cells    *recent[cellKey, hist]
	sessions *recent[sessionKey, session]
	branches *recent[branchKey, memory]
	queue    float64 // seconds
}

// NewEstimator returns an estimator that has seen nothing.
func NewEstimator(o Options) *Estimator {
	def := func(n, d int) int {
		if n <= 0 {
			return d
		}
		return n
	}
	n := def(o.Sessions, 65536)
	e := &Estimator{
		tools: newRecent[toolKey, mean](def(o.Tools, 4096)), cells: newRecent[cellKey, hist](def(o.Cells, 4096)),
		sessions: newRecent[sessionKey, session](n), branches: newRecent[branchKey, memory](n),
	}
	for k, s := range kindSeed {
		e.means[k] = mean{kindSeedWeight * math.Log(s), kindSeedWeight}
	}
	for m := range e.guesses {
		median := math.Exp(math.Log(shortest) + (float64(m)+0.5)*moodWidth)
		e.guesses[m].lognormal(1-guessNever, median, guessP90*median, guessNever)
	}
	return e
}

func moodOf(log float64) uint8 {
	m := math.Floor((log - math.Log(shortest)) / moodWidth)
	return uint8(min(max(m, 0), moods-1))
}

// seconds between two times, its logarithm bounded below.
func seconds(from, to int64) float64    { return float64(to-from) / 1e9 }
func logSeconds(from, to int64) float64 { return math.Log(max(seconds(from, to), shortest)) }

// firstTurn tells a branch's first turn, and the wait for the user after it, apart
// from later ones: many first turns are single questions that nobody goes on from.
const firstTurn = "first"

// toolOf names what w waits for.
func toolOf(w *Wait) toolKey {
	t := toolKey{tenant: w.Tenant, tool: w.Tool, kind: kindTool}
	switch {
	case w.Running:
		t.kind, t.tool = kindRun, ""
		if w.Turns <= 1 {
			t.tool = firstTurn
		}
	case w.Hint > w.Began:
		t.kind, t.tool = kindHinted, ""
		t.hint = int8(moodOf(logSeconds(w.Began, w.Hint)))
	case w.User:
		t.kind = kindUser
		if w.Turns <= 1 {
			t.tool = firstTurn
		}
	}
	return t
}

// predict says what w's wait is expected to be.
func (e *Estimator) predict(w *Wait) armed {
	a := armed{set: true, tool: toolOf(w), began: w.Began}
	k := e.means[a.tool.kind].toward(0, 0)
	if a.tool.kind == kindHinted {
		k = logSeconds(w.Began, w.Hint)
	}
	a.base = k
	if m := e.tools.find(a.tool); m != nil {
		a.base = m.toward(k, toolPrior)
	}
	log := a.base
	if s := e.sessions.find(sessionKey{w.Tenant, w.Session}); s != nil {
		switch a.tool.kind {
		case kindRun:
			log += s.runs.now()
		case kindTool, kindUser:
			log += s.waits.now()
		}
	}
	a.mood = moodOf(log)
	return a
}

// Began says that w waits, or runs when w.Running, from w.Began on. Said again
// before Ended, it replaces what was said before.
func (e *Estimator) Began(now int64, w *Wait) {
	m := e.branches.use(branchKey{w.Tenant, w.Session, w.Branch})
	if w.Running {
		m.run, m.wait = e.predict(w), armed{}
		return
	}
	m.wait = e.predict(w)
}

// Ended says that w was used again: a turn begins. Began with Running follows.
func (e *Estimator) Ended(now int64, w *Wait) { e.close(now, w, false) }

// Gone says that w ended without having been used again.
func (e *Estimator) Gone(now int64, w *Wait) { e.close(now, w, true) }

func (e *Estimator) close(now int64, w *Wait, never bool) {
	key := branchKey{w.Tenant, w.Session, w.Branch}
	m := e.branches.find(key)
	if m == nil {
		return
	}
	var s *session
	if !never {
		s = e.sessions.use(sessionKey{w.Tenant, w.Session})
	}
	if m.wait.set {
		off := e.learn(now, &m.wait, never)
		if s != nil && m.wait.tool.kind != kindHinted {
			s.waits.add(off)
		}
	}
	if m.run.set {
		off := e.learn(now, &m.run, never)
		if s != nil {
			s.runs.add(off)
		}
	}
	e.branches.forget(key)
}

// learn takes the outcome of a prediction and returns how far the tool's mean was
// off.
func (e *Estimator) learn(now int64, a *armed, never bool) float64 {
	t := max(seconds(a.began, now), 0)
	if never {
		t = math.Inf(1)
	}
	shape, cell := &e.shapes[a.tool.kind][a.mood], e.cells.use(cellKey{a.tool, a.mood})
	if a.lapsed {
		shape.unlapse()
		cell.unlapse()
	}
	shape.add(t, shapeForget)
	cell.add(t, cellForget)
	if never {
		return 0
	}
	log := logSeconds(a.began, now)
	e.means[a.tool.kind].add(log, kindForget)
	e.tools.use(a.tool).add(log, toolForget)
	return log - a.base
}

// Queue says how long a turn is predicted to wait in the queue, in ns. A branch is
// used again only that much after it resumed.
func (e *Estimator) Queue(ns int64) { e.queue = max(0, float64(ns)/1e9) }
