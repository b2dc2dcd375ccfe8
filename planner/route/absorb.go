package route

import "github.com/weir-dev/weir/schemas"

// absorbLook is how many of the waiting turns are valued at every tick.
const absorbLook = 8

// absorb has decode executors compute prompts themselves while a burst stands in front
// of those that prefill, within the class that their assignment allows. Turns that just
// came are valued, and at every tick some more of those that came last: they would wait
// longest.
func (r *Router) absorb(now schemas.Time, p *pool, out []schemas.Msg) []schemas.Msg {
	t, look := p.fresh, p.look
	p.fresh, p.look = nil, false
	if p.absorbers == 0 || p.rooms[needDecode] == 0 {
		return out
	}
	if t != nil {
		if t.queue != nil && t.state == stateWaiting {
			out, _ = r.absorbOne(now, t, out)
		}
	}
	if !look {
		return out
	}
	for n := needS; n < needs; n++ {
		for range absorbLook {
			ts := p.queue[n].ts
			if len(ts) == 0 {
				break
			}
			var did bool
			if out, did = r.absorbOne(now, ts[len(ts)-1], out); !did {
				break
			}
		}
	}
	return out
}

// absorbOne places a turn that waits for prefill on a decode executor when it is
// predicted to end sooner there by more than it costs the decodes that run there, both
// in seconds of turns. While somebody who prefills has room it never does.
func (r *Router) absorbOne(now schemas.Time, t *turn, out []schemas.Msg) ([]schemas.Msg, bool) {
	p := t.in
	if t.queue == nil || t.queue != &p.queue[t.class] || p.takers[t.class] == 0 || p.rooms[t.class] > 0 || p.rooms[needDecode] == 0 {
		return out, false
	}
	r.look(now, t)
	r.view(t)
	queue, ok := r.queued(t) // until it is computed if it waits
	if !ok {
		return out, false
	}
	var best *executor
	gain := 0.0
	for _, x := range p.xs {
		if !x.room[needDecode] || !x.absorbs() || !x.fits(t) {
			continue
		}
		plan := r.plan(x)
		if plan.compute*blockTokens > x.absorb.Max() {
			continue
		}
		// Decodes stand still while it computes.
		if g := queue - plan.seconds*float64(1+x.decoding); g > gain {
			best, gain = x, g
		}
	}
	if best == nil {
		return out, false
	}
	r.unwait(t)
	// The job is not Local: should the executor have got a narrower assignment meanwhile, or
	// should more be missing than was thought, it sends the turn back.
	p.totals.absorbed++
	return r.put(now, t, schemas.StageDecode, best, nil, out), true
}

// absorbs tells that x decodes and may compute more than what goes to it directly.
func (x *executor) absorbs() bool {
	return x.alive && x.role == schemas.RoleDecode && x.absorb.Max() > schemas.SizeSMax
}

// waitTokens is what is to be computed of the turns that wait for prefill.
func (p *pool) waitTokens() int { return p.tokens[needS] + p.tokens[needM] + p.tokens[needL] }
