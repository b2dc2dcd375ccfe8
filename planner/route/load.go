package route

import (
	"github.com/weir-dev/weir/schemas"
)

// totals are what the router counts of one pool since it started. Each turn counts
// once, when it becomes ready and when it ends, however often it is placed: what comes
// back, or is replayed to a router that starts, is no new work.
type totals struct {
	turns, prompt, uncached uint64
	attention               float64
	ended, output           uint64
	context, squares        float64
	absorbed, refused       uint64

	// over is how many tokens too many were counted of turns of which memory held
	// more than was known; the next turns pay them back, because totals only grow.
	over int
}

// arrived counts a turn that became ready and may be placed, with what is to be computed
// as far as the directory knows. One that was admitted before this router started was
// counted by the one before, and stands in what waits. One whose session is not admitted is
// no demand on any role: it is counted when it is, and a refused one never. Until then it
// stands in what waits, if prefill is what it waits for.
func (r *Router) arrived(t *turn) {
	if t.old {
		return
	}
	c := &t.in.totals
	t.counted = t.expect
	c.turns++
	c.prompt += uint64(t.ready.Prompt.N)
	c.compute(t.ready.Prompt.N, t.expect)
}

// compute adds tokens to be computed of a prompt of n tokens.
func (c *totals) compute(n, tokens int) {
	pay := min(c.over, tokens)
	c.over -= pay
	tokens -= pay
	c.uncached += uint64(tokens)
	c.attention += float64(tokens) * (float64(n-tokens) + float64(tokens)/2)
}

// missing is how many tokens of a turn's prompt no node holds.
func (r *Router) missing(t *turn) int {
	n := t.ready.Prompt.N
	switch {
	case t.ready.Prompt.Uncached:
		return n
	case r.dir.any() && len(t.shares) > 0:
		return n - min(t.whole(), t.shares[0].blocks)*blockTokens
	case r.dir.any() || t.evicted:
		return n
	}
	return n - min(t.whole(), t.ready.Prompt.TailFrom/blockTokens)*blockTokens
}

// found corrects what was counted of a turn by what an executor found of its prompt.
func (r *Router) found(t *turn, cached int) {
	was := t.counted
	if was == 0 {
		return
	}
	c := &t.in.totals
	t.counted = 0
	n := t.ready.Prompt.N
	switch computed := n - min(max(cached, 0), n); {
	case computed > was:
		c.compute(n-was, computed-was)
	default:
		c.over += was - computed
	}
}

// answered counts a turn that ended with a result of an executor.
func (r *Router) answered(t *turn, m *schemas.Result) {
	r.found(t, m.Usage.Cached)
	c := &t.in.totals
	c.ended++
	c.output += uint64(max(m.Usage.Completion, 0))
	c.context += float64(m.Usage.Completion) * (float64(t.ready.Prompt.N) + float64(m.Usage.Completion)/2)
	c.squares += float64(m.Usage.Completion) * float64(m.Usage.Completion)
}

// occupy notes that a turn decodes on x, vacate that it does not any more.
func (x *executor) occupy(t *turn) {
	t.occupies = true
	x.decoding++
	x.contexts += t.ready.Prompt.N
}

func (x *executor) vacate(t *turn) {
	if t.occupies {
		t.occupies = false
		x.decoding--
		x.contexts -= t.ready.Prompt.N
		x.own, t.own = x.own-t.own, 0
	}
}

// publishLoad tells what this router sees, see schemas.Load.
func (r *Router) publishLoad(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	if now < r.loadAt || r.busGone {
		return out
	}
	r.loadAt = now + schemas.Time(r.cfg.LoadNS)
	l := &schemas.Load{Header: schemas.H(), AtNS: int64(now), Router: r.cfg.Epoch, Pools: make([]schemas.PoolLoad, min(len(r.pools), schemas.MaxPools))}
	for i := range l.Pools {
		p, c := r.pools[i], &r.pools[i].totals
		l.Pools[i] = schemas.PoolLoad{
			Pool: p.name, Turns: c.turns, Prompt: c.prompt, Uncached: c.uncached, Attention: c.attention,
			Ended: c.ended, Output: c.output, Context: c.context, Squares: c.squares, Absorbed: c.absorbed, Refused: c.refused,
		}
		p.load(now, &l.Pools[i])
		for _, t := range r.forPrefill(now, p) {
			l.Pools[i].Held--
			l.Pools[i].WaitPrefill++
			l.Pools[i].WaitTokens += t.expect
		}
	}
	return append(out, schemas.Msg{Kind: schemas.KindLoad, Subject: schemas.LoadSubject(r.cfg.Cell), Core: true, Load: l})
}

// load fills in what waits and runs.
func (p *pool) load(now schemas.Time, l *schemas.PoolLoad) {
	add := func(t *turn, n need) {
		if n >= needS {
			l.WaitPrefill++
			l.WaitTokens += t.expect
		} else {
			l.WaitDecode++
		}
		l.OldestNS = max(l.OldestNS, int64(now-t.since))
	}
	for n := range needs {
		for _, t := range p.queue[n].ts {
			add(t, n)
		}
	}
	for _, ts := range p.list {
		for _, t := range ts {
			n := t.class
			if t.stage == schemas.StageDecode || t.local {
				n = needDecode
			}
			add(t, n)
		}
	}
	l.Held = len(p.held.ts)
	for _, t := range p.held.ts {
		l.OldestNS = max(l.OldestNS, int64(now-t.since))
	}
	l.Sessions, l.SessionTokens = p.book.Sessions()
	for _, x := range p.xs {
		for _, t := range x.wait.ts {
			add(t, t.class)
		}
		l.Prefilling += len(x.prefills)
		l.PrefillTokens += x.tokens
		l.Decoding += x.decoding
		l.DecodeTokens += x.contexts
	}
}
