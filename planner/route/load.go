package route

import (
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// totals are what the router counts of one pool since it started. Each turn counts
// once, when it becomes ready and when it ends, however often it is placed: what comes
// back, or is replayed to a router that starts, is no new work.
type totals struct {
	turns, prompt, uncached uint64
	attention               float64
	ended, output           uint64
	context                 float64
	absorbed, refused       uint64

	// over is how many tokens too many were counted of turns of which the tier held
	// more than was known; the next turns pay them back, because totals only grow.
	over int
}

// totalsOf are the books of a pool, nil when there are too many pools.
func (r *Router) totalsOf(pool string) *totals {
	c := r.totals[pool]
	if c == nil && len(r.totals) < schemas.MaxPools {
		c = &totals{}
		r.totals[pool] = c
		i, _ := slices.BinarySearch(r.pools, pool)
		r.pools = slices.Insert(r.pools, i, pool)
	}
	return c
}

// arrived counts a turn that became ready, with what is to be computed as far as the
// directory knows. One that was admitted before this router started was counted by
// the one before, and stands in what waits.
func (r *Router) arrived(now schemas.Time, t *turn) {
	r.look(now, t)
	t.expect = r.missing(t)
	c := r.totalsOf(t.ready.Pool)
	if c == nil || t.old {
		return
	}
	t.counted = true
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
	c := r.totals[t.ready.Pool]
	if c == nil || !t.counted {
		return
	}
	t.counted = false
	n := t.ready.Prompt.N
	switch computed := n - min(max(cached, 0), n); {
	case computed > t.expect:
		c.compute(n-t.expect, computed-t.expect)
	default:
		c.over += t.expect - computed
	}
}

// answered counts a turn that ended with a result of an executor.
func (r *Router) answered(t *turn, m *schemas.Result) {
	r.found(t, m.Usage.Cached)
	c := r.totals[t.ready.Pool]
	if c == nil {
		return
	}
	c.ended++
	c.output += uint64(max(m.Usage.Completion, 0))
	c.context += float64(m.Usage.Completion) * (float64(t.ready.Prompt.N) + float64(m.Usage.Completion)/2)
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
	}
}

// publishLoad tells what this router sees, see schemas.Load.
func (r *Router) publishLoad(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	if now < r.loadAt || r.busGone {
		return out
	}
	r.loadAt = now + schemas.Time(r.cfg.LoadNS)
	l := &schemas.Load{Header: schemas.H(), AtNS: int64(now), Router: r.cfg.Epoch, Pools: make([]schemas.PoolLoad, len(r.pools))}
	for i, pool := range r.pools {
		c := r.totals[pool]
		l.Pools[i] = schemas.PoolLoad{
			Pool: pool, Turns: c.turns, Prompt: c.prompt, Uncached: c.uncached, Attention: c.attention,
			Ended: c.ended, Output: c.output, Context: c.context, Absorbed: c.absorbed, Refused: c.refused,
		}
	}
	for _, t := range r.waiting {
		i, ok := slices.BinarySearch(r.pools, t.ready.Pool)
		if !ok {
			continue
		}
		p := &l.Pools[i]
		if t.stage == schemas.StagePrefill && !t.local && !t.alone && !r.small((t.expect-1)/blockTokens) {
			p.WaitPrefill++
			p.WaitTokens += t.expect
		} else {
			p.WaitDecode++
		}
		p.OldestNS = max(p.OldestNS, int64(now-t.since))
	}
	for _, id := range r.ids {
		x := r.execs[id]
		i, ok := slices.BinarySearch(r.pools, x.pool)
		if !ok {
			continue
		}
		p := &l.Pools[i]
		p.Prefilling += len(x.prefills)
		p.PrefillTokens += x.tokens
		p.Decoding += x.decoding
		p.DecodeTokens += x.contexts
	}
	return append(out, schemas.Msg{Kind: schemas.KindLoad, Subject: schemas.LoadSubject(r.cfg.Cell), Core: true, Load: l})
}
