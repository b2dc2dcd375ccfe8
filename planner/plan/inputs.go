package plan

import (
	"slices"
	"strings"

	"github.com/weir-dev/weir/planner/demand"
	"github.com/weir-dev/weir/planner/split"
	"github.com/weir-dev/weir/schemas"
)

// Bounds of what can be true. What is beyond them is not used: a report or load is
// somebody else's number.
const (
	mostTokensPerSecond = 1e8
	mostTurnsPerSecond  = 1e6
	mostWaiting         = 1e8
	// Attention and the like: tokens times tokens.
	mostTokenPairsPerSecond = 1e21
)

// report is what was last heard from an executor's reports.
type report struct {
	at     schemas.Time // when the last good one came; 0 for none
	ns     int64        // its own time
	seen   int          // good ones in this life
	stuck  int          // in a row that moved nothing although turns were held
	busyP  float64      // share of the time, smoothed
	busyD  float64
	kvUsed int
	flips  uint64
	// problem is why the last assignment is not in force.
	problem string

	prefillTokens, decodeTokens, prefillNS, decodeNS, steps, rows demand.Total
}

// stuckReports: so many reports in a row whose totals stand still although turns are
// held mean that they do not measure.
const stuckReports = 5

// report takes what an executor measured.
func (p *Planner) report(now schemas.Time, m *schemas.Report) {
	x := p.execs[m.Executor]
	if x == nil {
		return // it has not been heard
	}
	if unfit := cut(m.Unfit); unfit != x.unfit {
		x.unfit, x.fitAt = unfit, now
	}
	o := p.pool(x.pool)
	r := &x.rep
	r.problem = cut(m.Problem)
	if o == nil || m.AtNS <= r.ns && r.at != 0 || m.PrefillNS < 0 || m.DecodeNS < 0 || m.BusyNS < 0 || m.KVUsed < 0 {
		p.counts.BadReports++
		if int64(now-r.at) > int64(p.cfg.ReportAge) {
			r.ns = m.AtNS // its clock went back, and goes on from there
		}
		return
	}
	dt := p.between(now, r.at, m.AtNS, r.ns)
	first := r.at == 0
	r.at, r.ns, r.seen = now, m.AtNS, r.seen+1
	w := demand.Work{Seconds: dt, Size: x.size}
	oks := [...]bool{
		came(&r.prefillTokens, float64(m.PrefillTokens), &w.PrefillTokens), came(&r.decodeTokens, float64(m.DecodeTokens), &w.DecodeTokens),
		came(&r.prefillNS, float64(m.PrefillNS)/1e9, &w.PrefillSeconds), came(&r.decodeNS, float64(m.DecodeNS)/1e9, &w.DecodeSeconds),
		came(&r.steps, float64(m.DecodeSteps), &w.Steps), came(&r.rows, float64(m.DecodeRows), &w.Rows),
	}
	if first || slices.Contains(oks[:], false) || dt <= 0 {
		return // the first of its life, or of its totals' life
	}
	if w.PrefillTokens+w.DecodeTokens > mostTokensPerSecond*dt || w.PrefillSeconds > 1.5*dt+1 || w.DecodeSeconds > 1.5*dt+1 {
		p.counts.BadReports++
		return
	}
	r.kvUsed = min(m.KVUsed, 1<<40)
	k := min(1, dt/demand.FastWindow)
	r.busyP += (min(1, w.PrefillSeconds/dt) - r.busyP) * k
	r.busyD += (min(1, w.DecodeSeconds/dt) - r.busyD) * k
	switch {
	case w.PrefillTokens+w.DecodeTokens > 0 || w.PrefillSeconds+w.DecodeSeconds > 0 || x.prefills+x.decodes == 0:
		r.stuck = 0
	default:
		r.stuck = min(r.stuck+1, stuckReports)
	}
	// The first steps of a process are slow: it loads, captures and compiles. They do not say what
	// work costs.
	if r.seen > warmReports {
		o.meas.Add(w, o.load.attentionPerToken(), o.load.context(), o.full())
	}
	o.flips.note(r, m)
}

const warmReports = 5

// maxText bounds what is kept of an executor's own words, in bytes: a decision names
// those of up to all executors and must fit a message.
const maxText = 200

func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "")
}

// fullWait: when turns wait for prefill so many times longer than they take alone, its
// steps are full.
const fullWait = 3

// full reports whether prefill steps of the pool are full.
func (o *pool) full() bool {
	l := &o.load
	work := 0.0
	if l.rTurns.Fast > 0 {
		work = o.meas.Given.Prefill(l.rTurns.Fast, l.rUncached.Fast, l.rAttention.Fast) / l.rTurns.Fast
	}
	return l.waitP.Mean > 1 && l.waitP.Mean > fullWait*l.rTurns.Fast*o.meas.Given.Alone(work)
}

// came puts a total's step into dst.
func came(t *demand.Total, v float64, dst *float64) (ok bool) {
	*dst, ok = t.Step(v)
	return ok
}

// between is how many seconds lie between two messages: by the sender's clock where
// that agrees with the receiver's, which queues may have delayed.
func (p *Planner) between(now, last schemas.Time, ns, lastNS int64) float64 {
	if last == 0 {
		return 0
	}
	mine, theirs := float64(now-last)/1e9, float64(ns-lastNS)/1e9
	if theirs > 0 && theirs < 4*mine+1 && theirs > mine/4-1 {
		return theirs
	}
	return mine
}

// costs are what flips took, as reports tell. The first role of an executor is none: one
// that stood by holds nothing.
type costs struct {
	MS []float64 `json:"ms,omitempty"` // the last ones
}

const keptCosts = 16

func (c *costs) note(r *report, m *schemas.Report) {
	known := r.flips
	r.flips = m.Flips
	if m.Flips <= known || m.Flip == nil || m.Flip.Back != "" {
		return
	}
	ms := float64(m.Flip.ReturnNS+m.Flip.HandNS+m.Flip.VerifyNS) / 1e6
	if ms < 0 || ms > 600_000 || m.Flip.From == m.Flip.To || m.Flip.From == schemas.RoleStandby {
		return
	}
	if c.MS = append(c.MS, ms); len(c.MS) > keptCosts {
		c.MS = c.MS[1:]
	}
}

// ms is the mean of the last flips, or fallback.
func (c *costs) ms(fallback float64) float64 {
	if len(c.MS) == 0 {
		return fallback
	}
	sum := 0.0
	for _, x := range c.MS {
		sum += x
	}
	return sum / float64(len(c.MS))
}

// load is what the router says of a pool.
type load struct {
	at  schemas.Time
	now schemas.PoolLoad

	turns, uncached, attention, ended, output, outContext, squares demand.Total

	rTurns, rUncached, rAttention, rEnded, rOutput, rContext, rSquares demand.Rate
	seen                                                               float64 // turns that were counted

	// What waits, smoothed: a burst that is gone in a second is no reason.
	waitP, inP, waitD, inD, waitTokens demand.Level
}

// readLoad takes what the router saw.
func (p *Planner) readLoad(now schemas.Time, m *schemas.Load) {
	// A router before the one that is known has lost its lease, unless the other has gone:
	// then the numbers began again, or one was wrong.
	if m.Check() != nil || m.Router < p.router && int64(now-p.loadAt) <= int64(p.cfg.LoadAge) {
		p.counts.BadLoads++
		return
	}
	if m.Router != p.router {
		// Another router counts from zero.
		for _, name := range p.names {
			p.pools[name].load.restart()
		}
		p.router, p.loadNS = m.Router, 0
	}
	if m.AtNS <= p.loadNS {
		p.counts.BadLoads++
		if int64(now-p.loadAt) > int64(p.cfg.LoadAge) {
			p.loadNS = m.AtNS // its clock went back
		}
		return
	}
	dt := p.between(now, p.loadAt, m.AtNS, p.loadNS)
	p.loadAt, p.loadNS = now, m.AtNS
	for i := range m.Pools {
		l := &m.Pools[i]
		o := p.pool(l.Pool)
		if o == nil {
			continue
		}
		if !plausible(l) {
			p.counts.BadLoads++
			continue
		}
		if !o.load.take(now, dt, l) {
			p.counts.BadLoads++
		}
	}
}

// plausible: counts that can be counts.
func plausible(l *schemas.PoolLoad) bool {
	for _, x := range [...]int{l.WaitPrefill, l.WaitTokens, l.WaitDecode, l.Held, l.Prefilling, l.PrefillTokens, l.Decoding, l.DecodeTokens, l.Sessions, l.SessionTokens} {
		if x < 0 || float64(x) > mostWaiting*1e4 {
			return false
		}
	}
	return demand.Finite(l.Attention) && demand.Finite(l.Context) && demand.Finite(l.Squares) && l.Squares >= 0 && l.Attention >= 0 && l.Context >= 0 &&
		l.WaitPrefill < mostWaiting && l.WaitDecode < mostWaiting && l.Decoding < mostWaiting && l.Prefilling < mostWaiting
}

func (l *load) restart() {
	for _, t := range l.totals() {
		*t = demand.Total{}
	}
}

// take adds one load. It reports whether what it said can be.
func (l *load) take(now schemas.Time, dt float64, m *schemas.PoolLoad) bool {
	l.at, l.now = now, *m
	var turns, uncached, attention, ended, output, context, squares float64
	ok := [...]bool{
		came(&l.turns, float64(m.Turns), &turns), came(&l.uncached, float64(m.Uncached), &uncached), came(&l.attention, m.Attention, &attention),
		came(&l.ended, float64(m.Ended), &ended), came(&l.output, float64(m.Output), &output), came(&l.outContext, m.Context, &context),
		came(&l.squares, m.Squares, &squares),
	}
	step := dt
	if step <= 0 {
		step = 0.5
	}
	l.waitP.Add(float64(m.WaitPrefill), step)
	l.inP.Add(float64(m.Prefilling), step)
	l.waitD.Add(float64(m.WaitDecode), step)
	l.inD.Add(float64(m.Decoding), step)
	l.waitTokens.Add(float64(m.WaitTokens+m.PrefillTokens), step)
	if dt <= 0 || slices.Contains(ok[:], false) {
		return true // the first of a router's life
	}
	if turns > mostTurnsPerSecond*dt || ended > mostTurnsPerSecond*dt || uncached > 1e4*mostTokensPerSecond*dt || output > mostTokensPerSecond*dt ||
		max(attention, context, squares) > mostTokenPairsPerSecond*dt {
		return false
	}
	l.rTurns.Add(turns, dt)
	l.rUncached.Add(uncached, dt)
	l.rAttention.Add(attention, dt)
	l.rEnded.Add(ended, dt)
	l.rOutput.Add(output, dt)
	l.rContext.Add(context, dt)
	l.rSquares.Add(squares, dt)
	l.seen = min(l.seen+turns, 1e6)
	return true
}

// attentionPerToken is the mean context over which a computed token attends.
func (l *load) attentionPerToken() float64 {
	if l.rUncached.Slow <= 0 {
		return 0
	}
	return l.rAttention.Slow / l.rUncached.Slow
}

// context is the mean context of a turn that decodes.
func (l *load) context() float64 {
	ctx := 0.0
	if l.now.Decoding > 0 {
		ctx = float64(l.now.DecodeTokens) / float64(l.now.Decoding)
	}
	if l.rOutput.Slow > 0 {
		// What was generated over how long a context: half an answer more than its prompt.
		ctx = max(ctx, l.rContext.Slow/l.rOutput.Slow)
	}
	return ctx
}

// fewEnded: with fewer turns in the fast window, answers are judged by the slow one.
const fewEnded = 30

// answers is how long answers are, and their mean.
func (l *load) answers() (split.Mix, float64) {
	n, sum, squares := l.rEnded.Fast, l.rOutput.Fast, l.rSquares.Fast
	if n*demand.FastWindow < fewEnded {
		n, sum, squares = l.rEnded.Slow, l.rOutput.Slow, l.rSquares.Slow
	}
	if n <= 0 {
		return split.Mix{}, 0
	}
	return split.Fit(sum/n, squares/n), sum / n
}
