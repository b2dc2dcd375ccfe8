package route

import "github.com/weir-dev/weir/schemas"

// A turn whose context is in the memory of one executor's node may be better off waiting
// for that one than going to whoever has room: there everything would be computed again,
// and its context moves on with every turn. Such turns wait in a queue of the executor.
// They are valued anew when it has room, when it is lost or changes its role, and once
// they have waited for pinNS.
const pinNS = 1_000_000_000

// pinLook is how many turns of one executor's queue are valued anew per tick.
const pinLook = 4

// bestPrefill is the executor that would be done first with the turn in view: after what
// waits there before it, what it brings in and what it computes. One without room is named
// only where its node holds some of the turn, and is another one than that of the best with
// room; nil says that the turn is to wait for whoever has room first.
func (r *Router) bestPrefill(t *turn, n need) *executor {
	if r.cfg.Choose != nil {
		return r.chosen(t, n, nil)
	}
	var best, full *executor
	least, fullLeast := 0.0, 0.0
	apart := len(r.dir.list) > 1
	fewest := 0.0
	if apart {
		fewest = r.fewest(t, n)
	}
	for _, x := range t.in.xs {
		if !r.mayPrefill(x, t, n, apart) {
			continue
		}
		plan := r.plan(x)
		s := plan.seconds
		switch {
		case x.role == schemas.RoleMixed:
			// Those that decode there stand still while it computes, and it is to decode there, too.
			s += float64(len(x.decodes)) * (float64(plan.compute*blockTokens)/r.tps(x) + float64(r.cfg.SpreadNS)/1e9/float64(max(1, x.slots)))
		case apart:
			s += (s - fewest) * float64(len(x.prefills)+len(x.wait.ts))
		}
		ahead := x.tokens
		if x != t.next {
			ahead += x.pinned
		}
		s += (float64(ahead) + r.owes(x)) / r.tps(x)
		switch {
		case x.room[n] && (best == nil || s < least):
			best, least = x, s
		case !x.room[n] && (full == nil || s < fullLeast):
			full, fullLeast = x, s
		}
	}
	if full != nil && r.have(full) > 0 && (best == nil || fullLeast < least && full.at != best.at) {
		return full
	}
	return best
}

// mayPrefill tells whether x is to be weighed for a prefill: it has room, or, where nodes
// have memories of their own, may be waited for. One that does both phases may not: what it
// lacks is a slot, and nobody knows how long an answer gets.
func (r *Router) mayPrefill(x *executor, t *turn, n need, apart bool) bool {
	waits := apart && x.takes[n] && x.role != schemas.RoleMixed && x.reserved == nil && x.alone == nil
	return (x.room[n] || waits) && x.fits(t)
}

// fewest is the time that the turn in view takes where it takes least. What it takes
// elsewhere beyond that is work which nobody had to do, and delays about as many turns as
// wait there now. It counts once for each: else, under load, each turn would flee from a
// queue to one a little shorter, and all of them would compute contexts most of the time.
func (r *Router) fewest(t *turn, n need) float64 {
	least, any := 0.0, false
	for _, x := range t.in.xs {
		if !r.mayPrefill(x, t, n, true) {
			continue
		}
		if s := r.plan(x).seconds; !any || s < least {
			least, any = s, true
		}
	}
	return least
}

// pin lets a turn wait for an executor.
func (r *Router) pin(now schemas.Time, t *turn, x *executor) tried {
	t.pin, t.pinAt, t.queued, t.waits = x, now, t.expect, t.class
	x.wait.push(t)
	x.pinned += t.queued
	t.in.tokens[t.class] += t.queued
	t.in.pins++
	return triedMoved
}

func (r *Router) unpin(t *turn) {
	x := t.pin
	x.wait.remove(t)
	x.pinned -= t.queued
	t.in.tokens[t.waits] -= t.queued
	t.in.pins--
	t.pin, t.next = nil, nil
}

// revalue queues a turn again that is among the first of those that wait for an executor.
// What else waits there comes after it, and counts nothing where it is weighed anew: else
// an executor with room would lose each of its turns to one with a shorter queue.
func (r *Router) revalue(now schemas.Time, t *turn) {
	x := t.pin
	r.unpin(t)
	t.next = x
	r.enqueue(now, t)
}

// unpinAll queues the turns that wait for an executor again.
func (r *Router) unpinAll(now schemas.Time, x *executor) {
	for t := x.wait.first(); t != nil; t = x.wait.first() {
		r.unpin(t)
		r.enqueue(now, t)
	}
}

// repin queues turns again whose executor has room, cannot have them any more, or, when
// look is set, kept them waiting for long.
func (r *Router) repin(now schemas.Time, p *pool, look bool, out []schemas.Msg) []schemas.Msg {
	if p.pins == 0 {
		return out
	}
	for _, x := range p.xs {
		t := x.wait.first()
		switch {
		case t == nil:
		case !x.alive || !x.takes[t.class]:
			r.unpinAll(now, x)
		case x.room[t.class]:
			r.revalue(now, t)
		case look:
			for range pinLook {
				if t = x.wait.first(); t == nil || int64(now-t.pinAt) < pinNS {
					break
				}
				r.revalue(now, t)
			}
		}
	}
	if look {
		out = r.steal(now, p, out)
	}
	return out
}

// steal gives executors that have had nothing to prefill for idleNS a turn that waits for
// another one: of the longest queue, the one that costs least to compute there. Nobody else
// would use that time, however much of it computes again what the other one holds. It is
// one turn per executor and look.
func (r *Router) steal(now schemas.Time, p *pool, out []schemas.Msg) []schemas.Msg {
	for _, x := range p.xs {
		if len(x.prefills) > 0 || x.wait.first() != nil || r.owes(x) > 0 {
			x.idle = 0
			continue
		}
		if x.idle == 0 {
			x.idle = now
		}
		if int64(now-x.idle) < idleNS {
			continue
		}
		if t := r.stolen(now, p, x); t != nil {
			r.unpin(t)
			r.waiting--
			r.view(t)
			out = r.put(now, t, schemas.StagePrefill, x, nil, out)
			x.idle = 0
		}
	}
	return out
}

// idleNS is how long an executor has nothing to prefill before it takes turns of others.
const idleNS = 500_000_000

// stolen is the turn that x takes from the longest queue of the others.
func (r *Router) stolen(now schemas.Time, p *pool, x *executor) *turn {
	var from *executor
	for _, o := range p.xs {
		if o.wait.first() != nil && (from == nil || o.pinned > from.pinned) {
			from = o
		}
	}
	if from == nil {
		return nil
	}
	var best *turn
	least := 0.0
	for _, t := range from.wait.ts[:min(len(from.wait.ts), r.cfg.ScanMax)] {
		if !x.room[t.class] || !x.fits(t) || int64(now-t.pinAt) < idleNS {
			continue
		}
		if s := r.planFor(x, t).seconds; best == nil || s < least {
			best, least = t, s
		}
	}
	return best
}
