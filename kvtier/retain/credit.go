package retain

import "math"

// Level is how far a tenant's words are believed.
type Level uint8

// The levels, from none to all.
const (
	LevelLRU   Level = iota // nothing: its branches are ranked by Recency, ends included
	LevelInfer              // what is inferred, not what its agents say
	LevelHints              // what its agents say
)

// String returns the level as it stands in metrics and reports.
func (l Level) String() string {
	switch l {
	case LevelLRU:
		return "lru"
	case LevelInfer:
		return "inferred"
	default:
		return "hints"
	}
}

// The constants of the credit. Times are nanoseconds.
const (
	// margin is the share of what a tenant asks for that it may lose against LRU.
	margin = 0.01
	// alarmHints and alarmInfer are how much loss, in typical differences, ends the
	// trust: 16 resumes with all lost. With half of that the recorded sessions raise
	// false alarms, because an order that gains on the whole loses in bursts. What is inferred is believed longer, since plain
	// LRU, the level below, is the worst on every recorded load.
	alarmHints, alarmInfer = 16, 32
	// firstDoubt is how long the first doubt lasts; each one that follows before the
	// trust has proved itself lasts twice as long as the one before, up to lastDoubt.
	firstDoubt, lastDoubt = 60e9, 3600e9
	// proof is how many resumes without alarm make the next doubt a first one.
	proof = 200
	// settle is how long after a doubt began resumes say nothing about what is inferred:
	// what was evicted before still comes back. 60 s, the 90th percentile of tool waits.
	settle = 60e9
	// lying is the share of what was said of waits that is not so above which a tenant is
	// not believed: over the last 20, beside truthPrior that were so. Three lies at the
	// start are enough. Of inverted words one in ten is below it, one in two above.
	lying, lieForget, truthPrior = 0.2, 0.95, 8
	// sizeForget makes the typical difference a mean over 100 resumes.
	sizeForget = 0.99
)

// account watches whether an order does worse than LRU. It is Page's cumulative sum
// (1954): losses beyond the margin add up, gains take them back but are not banked,
// so that a long good past does not hide that things have turned.
type account struct {
	loss   float64 // cumulative sum, in blocks
	square mean    // of the differences
	good   int     // resumes since the last alarm
	from   int64   // resumes count from then on
	until  int64   // in doubt until then
	doubt  int64   // how long the next doubt lasts
	lies   mean    // of what was said: 1 where it was not so
}

// resumed counts one resume and reports whether it raised the alarm.
func (a *account) resumed(now int64, have, want, lru, alarm float64) bool {
	if now < a.until || now < a.from {
		return false
	}
	d := have - lru
	a.square.add(d*d, sizeForget)
	a.loss = max(0, a.loss-d-margin*want)
	if a.good++; a.good >= proof {
		a.doubt = firstDoubt
	}
	if a.loss <= alarm*math.Sqrt(a.square.toward(0, 0)) {
		return false
	}
	a.doubt = min(max(a.doubt, firstDoubt), lastDoubt)
	a.until = now + a.doubt
	*a = account{until: a.until, doubt: 2 * a.doubt, lies: a.lies}
	return true
}

// Credit learns how far words and inferences may be believed, by comparing what
// branches find when they go on with what plain LRU would have kept of them.
//
//	LevelHints ──tenant's resumes lose──► LevelInfer ──node's resumes lose──► LevelLRU
//	     ▲                                     │  ▲                              │
//	     └───────── 1 min, 2, 4 … 1 h ─────────┘  └──── 1 min, 2, 4 … 1 h ───────┘
//
// A tenant answers for its own hints, so that a liar does not cost the others their
// trust. What is inferred is judged for the node as a whole, by the tenants that
// are at LevelInfer: one whose users are slow loses to others, and should.
type Credit struct {
	tenants *recent[string, account]
	node    account
}

// NewCredit returns a credit for up to tenants tenants, 0 for 4,096. The least
// recently seen is forgotten first, and believed when it comes back.
func NewCredit(tenants int) *Credit {
	if tenants <= 0 {
		tenants = 4096
	}
	return &Credit{tenants: newRecent[string, account](tenants)}
}

// Resumed says that a branch of tenant went on: of the want blocks that it asks
// for, have are resident, and lru would be under plain LRU (Shadow.Resident).
func (c *Credit) Resumed(now int64, tenant string, have, want, lru int) {
	if want <= 0 {
		return
	}
	h, w, l := float64(max(0, min(have, want))), float64(want), float64(max(0, min(lru, want)))
	switch c.Level(now, tenant) {
	case LevelHints:
		if c.tenants.use(tenant).resumed(now, h, w, l, alarmHints) {
			c.node.from = max(c.node.from, now+settle)
		}
	case LevelInfer:
		c.node.resumed(now, h, w, l, alarmInfer)
	}
}

// Said says whether what an agent of tenant said of a wait turned out not to be so. That
// is counted, and doubted, as long as it goes on: trust returns with true words only.
func (c *Credit) Said(tenant string, wrong bool) {
	x := 0.0
	if wrong {
		x = 1
	}
	c.tenants.use(tenant).lies.add(x, lieForget)
}

// Level is how far tenant is believed now.
func (c *Credit) Level(now int64, tenant string) Level {
	a := c.tenants.find(tenant)
	switch {
	case a == nil || now >= a.until && a.lies.toward(0, truthPrior) <= lying:
		return LevelHints
	case now >= c.node.until:
		return LevelInfer
	default:
		return LevelLRU
	}
}
