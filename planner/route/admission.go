package route

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-dev/weir/planner/admit"
	"github.com/weir-dev/weir/schemas"
)

func keyOf(t *turn) admit.Key { return admit.Key{Tenant: t.ready.Tenant, Session: t.ready.Session} }

// contextOf is what the books learn of a turn.
func contextOf(t *turn) admit.Turn {
	p := &t.ready.Prompt
	return admit.Turn{Key: keyOf(t), Branch: t.ready.Branch, Tokens: p.N, Known: p.TailFrom, Found: p.N - t.expect}
}

// enter lets a turn that came in, or holds it until its session is admitted. held is
// false when the turn may be placed.
func (r *Router) enter(now schemas.Time, t *turn, out []schemas.Msg) (_ []schemas.Msg, held bool) {
	p, k := t.in, keyOf(t)
	came := now
	if r.cfg.Admit {
		came = p.book.Came(now, k)
	}
	t.keys[byKey] = int64(r.fair.At(now, came, k, t.ready.Priority))
	if !r.cfg.Admit {
		r.arrived(t)
		return out, false
	}
	// A router that has just started does not know the sessions that were admitted: they
	// are those with turns from before, and those that have a context already.
	young := int64(now-r.started) < p.book.IdleNS() && t.ready.Prompt.TailFrom > 0
	switch {
	case t.old || young:
		p.book.Adopt(now, contextOf(t))
	case p.book.Admitted(k):
	case (len(p.held.ts) == 0 || p.book.Once(contextOf(t))) && r.letIn(now, t):
	default:
		t.state, t.came, t.held = stateWaiting, came, true
		p.held.push(t)
		r.waiting++
		// Prefill that is behind catches up all the time; only memory is sure to stay full.
		if wait := p.book.Wait(now, r.ahead(t)); p.full && wait > p.book.WaitMax() {
			out = r.refuse(now, t, out)
		}
		return out, true
	}
	p.book.Begin(now, contextOf(t))
	t.begun = true
	r.arrived(t)
	return out, false
}

// letIn admits the session of a turn that came in, when there is room.
func (r *Router) letIn(now schemas.Time, t *turn) bool {
	p, x := t.in, contextOf(t)
	once := p.book.Once(x)
	if !once && r.gate(now, p) <= 0 {
		return false
	}
	if !p.book.Admit(now, x, r.space(p)) {
		p.full = true
		return false
	}
	p.full = p.full && once
	return true
}

// space is what the pool has for sessions. Executors are idle when a prompt would be
// computed at once, and decoded then.
func (r *Router) space(p *pool) admit.Space {
	s := admit.Space{Tokens: p.capacity()}
	prefill, takes := false, false
	for _, x := range p.xs {
		if !x.alive {
			continue
		}
		s.Few += fewSessions
		if x.role.Takes(schemas.StagePrefill) {
			takes = true
			prefill = prefill || len(x.prefills) == 0 && r.owes(x) == 0
		}
	}
	s.Idle = p.rooms[needDecode] > 0 && p.queue[needDecode].first() == nil && (prefill || !takes)
	return s
}

// fewSessions per executor are let in as long as memory holds what they have now.
const fewSessions = 4

// admitHeld admits sessions that wait, as long as there is room, and refuses those that
// have waited for as long as they may.
func (r *Router) admitHeld(now schemas.Time, p *pool, out []schemas.Msg) []schemas.Msg {
	room := r.gate(now, p)
	admitted := 0
	p.full = false
	for _, t := range p.inLine(room > 0) {
		r.look(now, t)
		x := contextOf(t)
		if (room <= 0 || p.full) && !p.book.Once(x) {
			continue // one after the other, so that large contexts get their turn, too
		}
		if !p.book.Admit(now, x, r.space(p)) {
			p.full = true
			continue
		}
		admitted++
		p.held.remove(t)
		t.held, t.begun = false, true
		p.book.Begin(now, x)
		r.arrived(t)
		r.enqueue(now, t)
		room -= t.expect
	}
	p.book.Progress(now, admitted, len(p.held.ts))
	var late []*turn
	for _, t := range p.held.ts {
		if int64(now-t.since) > p.book.WaitMax() {
			late = append(late, t)
		}
	}
	slices.SortFunc(late, func(a, b *turn) int { return int(a.order) - int(b.order) })
	for _, t := range late {
		out = r.refuse(now, t, out)
	}
	return out
}

// inLine are the turns that are held in order: all, or those whose sessions are not
// expected to come back, which wait for prefill like any other turn.
func (p *pool) inLine(all bool) []*turn {
	var ts []*turn
	for _, t := range p.held.ts {
		if all || p.book.Once(contextOf(t)) {
			ts = append(ts, t)
		}
	}
	slices.SortFunc(ts, func(a, b *turn) int {
		return cmp.Or(cmp.Compare(a.keys[byKey], b.keys[byKey]), cmp.Compare(a.order, b.order))
	})
	return ts
}

// ahead is how many sessions are to be admitted before a turn's.
func (r *Router) ahead(t *turn) int {
	n := t.in.book.Returning(t.came)
	for _, o := range t.in.held.ts {
		if o.keys[byKey] < t.keys[byKey] {
			n++
		}
	}
	return n
}

// refuse ends a turn for want of room, and says when room is expected.
func (r *Router) refuse(now schemas.Time, t *turn, out []schemas.Msg) []schemas.Msg {
	b := t.in.book
	retry := b.Wait(now, r.ahead(t))
	if retry == 0 || !t.in.full {
		retry = min(max(retry, b.WaitMax()/4), b.WaitMax())
	}
	retry = min(max(retry, retryMinNS), retryMaxNS)
	n, tokens := b.Sessions()
	b.Refuse(keyOf(t), t.came)
	t.in.totals.refused++
	return r.fail(now, t, &schemas.Failure{
		Code: schemas.CodeBusy, RetryNS: retry,
		Message: fmt.Sprintf("%d sessions with contexts of %d tokens are served, and there is no room for another one; try again in %d s", n, tokens, (retry+999_999_999)/1_000_000_000),
	}, out)
}

// Bounds of what a caller is told to wait: 1 s, 30 min.
const (
	retryMinNS = 1_000_000_000
	retryMaxNS = 1_800_000_000_000
)

// capacity is how many tokens of contexts the pool's memory holds: that of its nodes, or
// where there is none, that of its engines. 0 while that is not known.
func (p *pool) capacity() int {
	blocks, engines := 0, 0
	for i, x := range p.xs {
		if !x.alive {
			continue
		}
		engines += x.kv
		if x.at == nil || x.tier == 0 {
			continue
		}
		first := true // of its node
		for _, o := range p.xs[:i] {
			if o.alive && o.at == x.at && o.tier > 0 {
				first = false
				break
			}
		}
		if first {
			blocks += x.tier
		}
	}
	if blocks > 0 {
		return blocks * blockTokens
	}
	return engines
}

// gate is how many tokens of first prompts may be let in: as many as leave no more
// to be computed than takes TTFTNS. With half of that steps are not full, and the planner
// takes prefill for slower than it is. Nothing while turns wait for decode slots, or streams are slow:
// more sessions would make all of them late, and are better kept waiting before their
// first turn.
func (r *Router) gate(now schemas.Time, p *pool) int {
	if r.decodeBehind(now, p) {
		return 0
	}
	speed, tokens := 0.0, p.waitTokens()
	for _, x := range p.xs {
		if x.alive && x.role.Takes(schemas.StagePrefill) {
			speed += r.tps(x)
			tokens += x.tokens + int(r.owes(x))
		}
	}
	if speed == 0 {
		return 1 << 40 // nobody prefills: decode slots are the bound
	}
	return int(speed*float64(r.cfg.TTFTNS)/1e9) - tokens + 1
}

// decodeBehind: turns wait for decode slots, or streams are slow.
func (r *Router) decodeBehind(now schemas.Time, p *pool) bool {
	if t := p.queue[needDecode].first(); t != nil && int64(now-t.since) > r.cfg.TTFTNS/4 {
		return true
	}
	rate, decoders := 0.0, 0
	for _, x := range p.xs {
		if x.alive && x.role.Takes(schemas.StageDecode) && x.rate > 0 && x.decoding > 1 {
			rate += x.rate
			decoders++
		}
	}
	return r.cfg.TPOTNS > 0 && decoders > 0 && rate/float64(decoders) < 1e9/float64(r.cfg.TPOTNS)
}

// forPrefill are the turns whose sessions are held because prefill is behind: memory has
// room for them, and decode is not what they wait for.
func (r *Router) forPrefill(now schemas.Time, p *pool) []*turn {
	if len(p.held.ts) == 0 || p.tight() || r.decodeBehind(now, p) {
		return nil
	}
	ts := make([]admit.Turn, len(p.held.ts))
	for i, t := range p.held.ts {
		ts[i] = contextOf(t)
	}
	return p.held.ts[:p.book.Room(ts, p.capacity())]
}

// tight: decodes take nearly all of the memory that engines may give them.
func (p *pool) tight() bool {
	used, kv := 0, 0
	for _, x := range p.xs {
		if x.alive && x.role.Takes(schemas.StageDecode) {
			used += x.contexts + x.coming
			kv += x.kv
		}
	}
	return kv > 0 && float64(used) > 0.8*float64(kv)
}

// hopeless tells that a turn cannot end in time, and why: too much is to be computed
// before it, or of its own prompt. Only measured speeds count.
func (r *Router) hopeless(now schemas.Time, t *turn) string {
	left := t.ready.DeadlineNS - int64(now)
	if t.ready.DeadlineNS <= 0 || left > hopelessLook {
		return ""
	}
	speed, fastest, tokens := 0.0, 0.0, 0
	for _, x := range t.in.xs {
		if x.alive && x.takes[t.class] && x.tps > 0 {
			speed, fastest = speed+x.tps, max(fastest, x.tps)
			tokens += x.tokens
		}
	}
	if speed == 0 || t.in.rooms[t.class] > 0 && float64(t.expect)/fastest*1e9 < float64(left) {
		return ""
	}
	for n := needS; n < needs; n++ {
		for _, o := range t.in.queue[n].ts {
			if o.keys[byKey] < t.keys[byKey] {
				tokens += o.queued
			}
		}
	}
	own := float64(t.expect) / fastest
	if need := float64(tokens)/speed + own; need*1e9 > float64(left) {
		return fmt.Sprintf("the turn cannot end in time: its prompt would be computed in %.1f s, and its deadline is in %.1f s", need, float64(left)/1e9)
	}
	return ""
}

// hopelessLook: deadlines that are farther away are not looked at. 60 s.
const hopelessLook = 60_000_000_000

// branch learns that a branch has ended.
func (r *Router) branch(now schemas.Time, b *schemas.BranchChange) {
	if !r.cfg.Admit || b.State != schemas.BranchEnded {
		return
	}
	for _, p := range r.pools {
		p.book.Leave(now, admit.Key{Tenant: b.Tenant, Session: b.Session}, b.Branch)
	}
}

// charge notes what a turn has cost so far, in seconds of an executor.
func (r *Router) charge(now schemas.Time, t *turn, seconds float64) {
	r.fair.Charge(now, keyOf(t), seconds)
}

// served charges a turn that has its answer: for what was computed of its prompt on
// the way, and for its part of a decode executor.
func (r *Router) served(now schemas.Time, t *turn, m *schemas.Result) {
	x := r.execs[m.DecodeOn]
	if x == nil {
		return
	}
	seconds := float64(m.Timing.DecodeNS) / 1e9 / float64(max(1, x.slots))
	if m.PrefillOn == m.DecodeOn {
		seconds += float64(max(0, m.Usage.Prompt-m.Usage.Cached)) / r.tps(x)
	}
	r.charge(now, t, seconds)
}
