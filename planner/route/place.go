package route

import (
	"slices"

	"github.com/weir-dev/weir/schemas"
)

// place gives waiting turns to executors that have room, oldest first. A turn
// that finds no room does not hold up the ones behind it that need another
// stage.
func (r *Router) place(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	if len(r.waiting) == 0 || r.busGone {
		return out
	}
	if !r.anyRoom() {
		return out
	}
	kept := r.waiting[:0:0]
	scanned := 0
	live := r.livePools()
	var noEmpty []string // pools without an empty executor
	for i, t := range r.waiting {
		if scanned >= r.cfg.ScanMax {
			kept = append(kept, r.waiting[i:]...)
			break
		}
		if t.alone && slices.Contains(noEmpty, t.ready.Pool) {
			// After a death thousands of turns may wait for an executor of their own;
			// they must not keep the scan from the others.
			kept = append(kept, t)
			continue
		}
		if !slices.Contains(live, t.ready.Pool) {
			kept = append(kept, t) // turns of a model that nobody runs cost the others no part of the scan
			continue
		}
		scanned++
		if !r.settled(now) && (t.old || r.reading(now, t)) {
			kept = append(kept, t)
			continue
		}
		var ok bool
		if out, ok = r.placeOne(now, t, out); !ok {
			kept = append(kept, t)
			if t.alone {
				noEmpty = append(noEmpty, t.ready.Pool)
			}
		}
	}
	r.waiting = kept
	return out
}

// livePools are the models that some living executor runs.
func (r *Router) livePools() []string {
	var pools []string
	for _, id := range r.ids {
		if x := r.execs[id]; x.alive && !slices.Contains(pools, x.pool) {
			pools = append(pools, x.pool)
		}
	}
	return pools
}

// anyRoom is a cheap test that spares the scan while every executor is full.
func (r *Router) anyRoom() bool {
	for _, id := range r.ids {
		x := r.execs[id]
		if x.open() && (r.decodeRoom(x) || r.prefillRoom(x, 0) || x.reserved != nil && x.empty()) {
			return true
		}
	}
	return false
}

func (r *Router) placeOne(now schemas.Time, t *turn, out []schemas.Msg) ([]schemas.Msg, bool) {
	r.look(now, t)
	if t.alone {
		x := r.emptyFor(t)
		if x == nil {
			return out, false
		}
		if t.keeps != nil {
			t.keeps.reserved, t.keeps = nil, nil
		}
		x.alone, t.local = t, true
		return r.put(now, t, schemas.StageDecode, x, nil, out), true
	}
	x := r.bestDecode(t, nil)
	if t.stage != schemas.StageDecode && !t.local && !r.direct(t, x) {
		pre := r.cheapestPrefill(t)
		switch {
		case pre != nil && pre.role == schemas.RoleMixed && r.decodeRoom(pre):
			// Prefill and decode in one place need no hand-over.
			t.local = true
			return r.put(now, t, schemas.StageDecode, pre, nil, out), true
		case pre != nil:
			// A decode executor of another node brings the blocks in from here, once they
			// are sealed: it is chosen then.
			return r.put(now, t, schemas.StagePrefill, pre, r.bestDecode(t, pre), out), true
		case r.anyPrefills(t):
			return out, false // wait for room
		}
		t.local = true // nobody prefills: the decode side does what it must
	}
	if x == nil {
		return out, false
	}
	if t.prefillOn != "" && x.at != nil && !r.handsOver(t) && !r.small(r.plan(x, t).compute) {
		t.local = true // it lacks what another node computed, and is to compute it itself
	}
	return r.put(now, t, schemas.StageDecode, x, nil, out), true
}

// direct reports whether a turn skips the prefill stage: so little is to be computed
// on x, or on the executor that is waited for when x is nil.
func (r *Router) direct(t *turn, x *executor) bool {
	if x != nil {
		return r.small(r.plan(x, t).compute)
	}
	least := t.whole()
	for _, id := range r.ids {
		if o := r.execs[id]; o.alive && o.fits(t) && o.role.Takes(schemas.StageDecode) {
			least = min(least, r.plan(o, t).compute)
		}
	}
	return r.small(least)
}

func (r *Router) small(blocks int) bool { return blocks == 0 || blocks*blockTokens <= r.cfg.DirectMax }

// put places one stage. then is the executor that will decode after a prefill.
func (r *Router) put(now schemas.Time, t *turn, stage schemas.Stage, x, then *executor, out []schemas.Msg) []schemas.Msg {
	if !t.handed {
		t.placed(now)
	}
	if !t.handed || t.attempt < t.used {
		t.used++ // a hand-over from prefill to decode is the same attempt
		t.attempt = t.used
	}
	t.handed = false
	t.state, t.stage, t.exec, t.decodeOn, t.placedAt, t.missing = statePlaced, stage, x, then, now, 0
	job := &schemas.Job{
		Header: schemas.H(), Stage: stage, Attempt: t.attempt, Ready: t.ready, Router: r.cfg.Epoch, Alone: t.alone, Local: t.local,
		PlacedNS: int64(now), FirstNS: t.first, Spans: t.spans, Miss: t.miss,
	}
	p := r.plan(x, t)
	t.promised, t.charged = 0, 0
	if stage == schemas.StagePrefill || !r.handsOver(t) {
		job.Sources = r.sources(x, t, p)
		t.promised = p.have + p.bring
	}
	if stage == schemas.StagePrefill {
		x.prefills[t.ready.Job] = t
		t.charged = p.compute * blockTokens
		x.tokens += t.charged
		if then != nil {
			then.decodes[t.ready.Job] = t
			t.boot = then.boot
			job.DecodeOn = then.id
		}
	} else {
		x.decodes[t.ready.Job] = t
		x.occupy(t)
		job.PrefillOn, job.Cached, job.BusyNS = t.prefillOn, t.cached, t.busy
	}
	r.counts.Placed++
	return append(out, schemas.Msg{
		Kind: schemas.KindJob, Subject: schemas.JobSubject(stage, r.cfg.Cell, x.id, t.ready.Job), Trace: t.trace,
		ID: jobMsgID(t.ready, stage, t.attempt), Job: job,
	})
}

// open: it may get new work at all.
func (x *executor) open() bool { return x.alive && !x.closed && x.alone == nil }

// fits: it runs the turn's model, and its sequences are long enough.
func (x *executor) fits(t *turn) bool {
	return x.pool == t.ready.Pool && x.context > t.ready.Prompt.N
}

// prefillRoom: one job always, more while few tokens wait.
func (r *Router) prefillRoom(x *executor, need int) bool {
	if !x.role.Takes(schemas.StagePrefill) || x.reserved != nil || len(x.prefills) >= r.cfg.PrefillJobs {
		return false
	}
	return len(x.prefills) == 0 || x.tokens+need <= r.cfg.PrefillTokens
}

func (r *Router) decodeRoom(x *executor) bool {
	return x.role.Takes(schemas.StageDecode) && x.reserved == nil && len(x.decodes) < x.slots
}

// cheapestPrefill is the executor with room that would be done first: after what
// waits there, what it brings in and what it computes.
func (r *Router) cheapestPrefill(t *turn) *executor {
	if r.cfg.Choose != nil {
		return r.chosen(t, schemas.StagePrefill, nil)
	}
	var best *executor
	least := 0.0
	for _, id := range r.ids {
		x := r.execs[id]
		if !x.open() || !x.fits(t) || !x.allows(t) {
			continue
		}
		p := r.plan(x, t)
		if !r.prefillRoom(x, p.compute*blockTokens) {
			continue
		}
		if s := p.seconds + float64(x.tokens)/r.tps(x); best == nil || s < least {
			best, least = x, s
		}
	}
	return best
}

// handsOver tells that the executor that prefilled a turn still has its blocks in its
// engine and gives them to whoever decodes it.
func (r *Router) handsOver(t *turn) bool {
	if !r.cfg.Handover || !t.handed || t.prefillOn == "" {
		return false
	}
	x := r.execs[t.prefillOn]
	return x != nil && x.alive && x.boot == t.prefillBoot
}

// bestDecode is the executor with room that lacks least of the prompt, in seconds;
// the share of its slots in use counts too, and what its engine still holds. near, when given, must use the same
// memory.
func (r *Router) bestDecode(t *turn, near *executor) *executor {
	if r.cfg.Choose != nil {
		return r.chosen(t, schemas.StageDecode, near)
	}
	var best *executor
	least := 0.0
	for _, id := range r.ids {
		x := r.execs[id]
		if !x.open() || !x.fits(t) || !r.decodeRoom(x) || near != nil && x.at != near.at && !r.cfg.Handover {
			continue
		}
		s := float64(r.cfg.SpreadNS) / 1e9 * float64(len(x.decodes)) / float64(x.slots)
		s -= float64(x.keeps(&t.ready.Prompt)*blockTokens) / r.cfg.ImportTPS
		if near == nil && !r.handsOver(t) {
			s += r.plan(x, t).seconds
		}
		if best == nil || s < least {
			best, least = x, s
		}
	}
	return best
}

// allows reports whether the assignment lets x prefill a turn of that size.
func (x *executor) allows(t *turn) bool {
	a := schemas.Assignment{Role: x.role, Classes: x.classes}
	return a.Allows(schemas.StagePrefill, t.ready.Prompt.N-t.ready.Prompt.TailFrom)
}

func (r *Router) anyPrefills(t *turn) bool {
	for _, id := range r.ids {
		if x := r.execs[id]; x.alive && x.fits(t) && x.allows(t) {
			return true
		}
	}
	return false
}

// emptyFor is an empty executor for a turn that must run alone. When all are
// busy, one is kept free of new work until it is empty, so that load cannot
// starve the turn.
func (r *Router) emptyFor(t *turn) *executor {
	var keep *executor
	reserved := false
	for _, id := range r.ids {
		x := r.execs[id]
		if !x.open() || !x.role.Takes(schemas.StageDecode) || !x.fits(t) {
			continue
		}
		if x.empty() {
			return x
		}
		if x.reserved != nil {
			reserved = true
			continue
		}
		if keep == nil || len(x.decodes) < len(keep.decodes) {
			keep = x
		}
	}
	if keep != nil && !reserved {
		if t.keeps != nil { // which ended, or got another role
			t.keeps.reserved = nil
		}
		keep.reserved, t.keeps = t, keep
	}
	return nil
}
