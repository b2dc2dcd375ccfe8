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
// waits there, what it brings in and what it computes. One without room is named only if
// its node is another one than that of the best with room.
func (r *Router) bestPrefill(t *turn, n need) *executor {
	if r.cfg.Choose != nil {
		return r.chosen(t, n, nil)
	}
	var best, full *executor
	least, fullLeast := 0.0, 0.0
	apart := len(r.dir.list) > 1
	for _, x := range t.in.xs {
		if !x.room[n] && (!apart || !x.takes[n] || x.reserved != nil || x.alone != nil || r.have(x) == 0) || !x.fits(t) {
			continue
		}
		s := r.plan(x).seconds + float64(x.tokens+x.pinned)/r.tps(x)
		switch {
		case x.room[n] && (best == nil || s < least):
			best, least = x, s
		case !x.room[n] && (full == nil || s < fullLeast):
			full, fullLeast = x, s
		}
	}
	if full != nil && (best == nil || fullLeast < least && full.at != best.at) {
		return full
	}
	return best
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
	t.pin = nil
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
func (r *Router) repin(now schemas.Time, p *pool, look bool) {
	if p.pins == 0 {
		return
	}
	for _, x := range p.xs {
		t := x.wait.first()
		switch {
		case t == nil:
		case !x.alive || !x.takes[t.class]:
			r.unpinAll(now, x)
		case x.room[t.class]:
			r.unpin(t)
			r.enqueue(now, t)
		case look:
			for range pinLook {
				if t = x.wait.first(); t == nil || int64(now-t.pinAt) < pinNS {
					break
				}
				r.unpin(t)
				r.enqueue(now, t)
			}
		}
	}
}
