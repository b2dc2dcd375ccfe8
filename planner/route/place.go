package route

import (
	"github.com/weir-dev/weir/schemas"
)

// place gives waiting turns to executors that have room. A need for which nobody has
// room does not hold up the others, and costs nothing.
func (r *Router) place(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	if r.waiting == 0 || r.busGone {
		return out
	}
	for _, p := range r.pools {
		if p.look && r.cfg.Admit {
			out = r.admitHeld(now, p, out)
		}
		if p.refit {
			p.refit = false
			r.relist(now, p, listMisfit)
		}
		if p.dirty || p.look {
			out = r.repin(now, p, p.look, out)
		}
		if p.dirty {
			out = r.placeIn(now, p, out)
		}
		if p.fresh != nil || p.look {
			out = r.absorb(now, p, out)
		}
	}
	return out
}

// tried is what became of a turn that place looked at.
type tried uint8

const (
	triedPlaced tried = iota
	triedMoved        // it has another need
	triedNoRoom       // those that have room do not suit it
)

// placeIn places the turns of one pool, of those that wait for different things the
// one whose turn it is first.
func (r *Router) placeIn(now schemas.Time, p *pool, out []schemas.Msg) []schemas.Msg {
	p.dirty = false
	skipped, waits := r.skipped[:0], r.waits[:0]
	alone := p.rooms[needAlone] > 0
	for budget := r.cfg.ScanMax; ; {
		n, ok := p.next(alone)
		if !ok {
			break
		}
		if budget == 0 {
			p.dirty = true // the others are looked at with the next message
			break
		}
		t := p.queue[n].first()
		p.pop(t)
		var did tried
		if out, did = r.tryPlace(now, t, n, out); did == triedPlaced {
			r.waiting--
			continue
		}
		budget--
		if did == triedNoRoom {
			skipped, waits = append(skipped, t), append(waits, n)
			// After a death thousands of turns may wait for an executor of their own;
			// one is kept free for the first.
			alone = alone && n != needAlone
		}
	}
	for i, t := range skipped {
		p.push(t, waits[i])
	}
	clear(skipped)
	r.skipped, r.waits = skipped[:0], waits[:0]
	return out
}

// next is the need with room whose first turn comes before those of the others.
func (p *pool) next(alone bool) (best need, ok bool) {
	var first *turn
	for n := range needs {
		t := p.queue[n].first()
		if t == nil || n == needAlone && !alone || !p.hasRoom(n) {
			continue
		}
		if first == nil || t.keys[byKey] < first.keys[byKey] || t.keys[byKey] == first.keys[byKey] && t.order < first.order {
			best, first = n, t
		}
	}
	return best, first != nil
}

// hasRoom tells whether some executor has room for a need. A prompt that nobody
// prefills waits for the decode side, which does what it must.
func (p *pool) hasRoom(n need) bool {
	if n >= needS && p.takers[n] == 0 {
		n = needDecode
	}
	return p.rooms[n] > 0
}

// move queues a turn again under another need.
func (r *Router) move(now schemas.Time, t *turn) tried {
	r.enqueue(now, t)
	return triedMoved
}

// tryPlace places a turn that was taken from the queue of need n, or says why not.
func (r *Router) tryPlace(now schemas.Time, t *turn, n need, out []schemas.Msg) ([]schemas.Msg, tried) {
	r.look(now, t)
	if n == needAlone {
		return r.tryAlone(now, t, out)
	}
	r.view(t)
	var x *executor
	if t.in.rooms[needDecode] > 0 {
		x = r.bestDecode(t, nil)
	}
	if t.stage == schemas.StageDecode || t.local {
		return r.tryDecode(now, t, x, out)
	}
	if x != nil && r.direct(t, x) {
		return r.put(now, t, schemas.StageDecode, x, nil, out), triedPlaced
	}
	if n == needDecode {
		// What little it lacks is not there where there is a slot.
		t.indirect = t.indirect || x != nil || !r.small((t.expect-1)/blockTokens)
		if t.indirect {
			return out, r.move(now, t)
		}
		return out, r.unfit(t, needDecode)
	}
	return r.tryPrefill(now, t, x, n, out)
}

func (r *Router) tryPrefill(now schemas.Time, t *turn, x *executor, n need, out []schemas.Msg) ([]schemas.Msg, tried) {
	if x == nil && !t.indirect && r.small((t.expect-1)/blockTokens) {
		return out, r.move(now, t) // meanwhile others computed it: it waits for a decode slot
	}
	pre := r.bestPrefill(t, n)
	switch {
	case pre != nil && !pre.room[n]:
		return out, r.pin(now, t, pre)
	case pre != nil && pre.role == schemas.RoleMixed && pre.room[needDecode]:
		// Prefill and decode in one place need no hand-over.
		t.local = true
		return r.put(now, t, schemas.StageDecode, pre, nil, out), triedPlaced
	case pre != nil:
		// A decode executor of another node brings the blocks in from here, once they
		// are sealed: it is chosen then.
		var then *executor
		if t.in.rooms[needDecode] > 0 {
			then = r.bestDecode(t, pre)
		}
		return r.put(now, t, schemas.StagePrefill, pre, then, out), triedPlaced
	case r.anyTakes(t, n):
		return out, triedNoRoom
	case x == nil:
		return out, r.unfit(t, needDecode)
	}
	t.local = true // nobody prefills: the decode side does what it must
	return r.put(now, t, schemas.StageDecode, x, nil, out), triedPlaced
}

func (r *Router) tryDecode(now schemas.Time, t *turn, x *executor, out []schemas.Msg) ([]schemas.Msg, tried) {
	if x == nil {
		return out, r.unfit(t, needDecode)
	}
	if t.prefillOn != "" && x.at != nil && !r.handsOver(t) && !r.small(r.plan(x).compute) {
		t.local = true // it lacks what another node computed, and is to compute it itself
	}
	return r.put(now, t, schemas.StageDecode, x, nil, out), triedPlaced
}

func (r *Router) tryAlone(now schemas.Time, t *turn, out []schemas.Msg) ([]schemas.Msg, tried) {
	x := r.emptyFor(t)
	if x == nil {
		return out, r.unfit(t, needAlone)
	}
	if k := t.keeps; k != nil {
		k.reserved, t.keeps = nil, nil
		r.update(k)
	}
	x.alone, t.local = t, true
	return r.put(now, t, schemas.StageDecode, x, nil, out), triedPlaced
}

// unfit puts a turn aside that no living executor could ever take, whatever room it has.
func (r *Router) unfit(t *turn, n need) tried {
	if r.anyTakes(t, n) {
		return triedNoRoom
	}
	r.list(t, listMisfit)
	return triedMoved
}

// unpark looks again at turns that waited for the router to learn what there is.
func (r *Router) unpark(now schemas.Time) {
	for _, p := range r.pools {
		if len(p.list[listParked]) > 0 {
			r.relist(now, p, listParked)
		}
	}
}

func (r *Router) small(blocks int) bool { return blocks <= 0 || blocks*blockTokens <= r.cfg.DirectMax }

// put places one stage. then is the executor that will decode after a prefill.
func (r *Router) put(now schemas.Time, t *turn, stage schemas.Stage, x, then *executor, out []schemas.Msg) []schemas.Msg {
	over := stage == schemas.StageDecode && r.handsOver(t)
	if !t.handed {
		t.placed(now)
	}
	if !t.handed || t.attempt < t.used {
		t.used++ // a hand-over from prefill to decode is the same attempt
		t.attempt = t.used
	}
	t.handed, t.next = false, nil
	r.unexport(t)
	t.state, t.stage, t.exec, t.decodeOn, t.placedAt, t.missing = statePlaced, stage, x, then, now, 0
	job := &schemas.Job{
		Header: schemas.H(), Stage: stage, Attempt: t.attempt, Ready: t.ready, Router: r.cfg.Epoch, Alone: t.alone, Local: t.local,
		PlacedNS: int64(now), FirstNS: t.first, Spans: t.spans, Miss: t.miss,
	}
	p := r.planFor(x, t)
	t.promised, t.charged = 0, 0
	if !over {
		job.Sources = r.sources(x, p)
		t.promised = p.have + p.bring
	}
	if stage == schemas.StagePrefill {
		x.prefills[t.ready.Job] = t
		t.charged = p.compute * blockTokens
		x.tokens += t.charged
		if then != nil {
			then.decodes[t.ready.Job] = t
			then.coming += t.ready.Prompt.N
			r.update(then)
			t.boot = then.boot
			job.DecodeOn = then.id
		}
	} else {
		x.decodes[t.ready.Job] = t
		x.occupy(t)
		if !over {
			t.own = p.compute * blockTokens
			x.owed, x.owedAt = r.owes(x)+float64(t.own), now
			x.own += t.own
		}
		job.PrefillOn, job.Cached, job.BusyNS = t.prefillOn, t.cached, t.busy
	}
	r.update(x)
	r.counts.Placed++
	return append(out, schemas.Msg{
		Kind: schemas.KindJob, Subject: schemas.JobSubject(stage, r.cfg.Cell, x.id, t.ready.Job), Trace: t.trace,
		ID: jobMsgID(t.ready, stage, t.attempt), Job: job,
	})
}

// open: it may get new work at all.
func (x *executor) open() bool { return x.alive && !x.closed && x.alone == nil }

// fits: its sequences are long enough.
func (x *executor) fits(t *turn) bool { return x.context > t.ready.Prompt.N }

// prefillRoom: one job always, more while what waits there is done soon. An executor of
// several accelerators may advance as many prompts at once, each step as long as its
// longest, so that many and as many to follow are wanted, however long they are.
func (r *Router) prefillRoom(x *executor) bool {
	jobs := len(x.prefills)
	switch {
	case !x.role.Takes(schemas.StagePrefill) || x.reserved != nil || jobs >= r.cfg.PrefillJobs*max(1, x.size):
		return false
	case x.kv > 0 && 2*x.exports >= x.kv && x.exports > 0:
		return false // decode is the bottleneck: what more it computed would push out what waits
	case jobs == 0:
		return true
	case x.size > 1 && jobs < 2*x.size:
		return x.tokens < 4*r.credit(x)
	}
	return x.tokens < r.credit(x)
}

// credit is how many tokens may wait at a prefill executor, from its measured speed.
func (r *Router) credit(x *executor) int {
	tps := x.tps
	if tps <= 0 && x.in != nil {
		tps = x.in.tps
	}
	return max(r.cfg.PrefillTokens, int(tps*float64(r.cfg.PrefillNS)/1e9))
}

// decodeRoom: a slot, and memory for one more context as far as prompts and the mean
// answer tell. Beyond that the engine would have to give sequences back.
func (r *Router) decodeRoom(x *executor) bool {
	if !x.role.Takes(schemas.StageDecode) || x.reserved != nil || len(x.decodes) >= x.slots {
		return false
	}
	if x.kv <= 0 || len(x.decodes) == 0 {
		return true
	}
	answers := 0.0
	if x.in != nil && x.in.totals.ended > 0 {
		answers = float64(x.in.totals.output) / float64(x.in.totals.ended) / 2 * float64(len(x.decodes))
	}
	return float64(x.contexts+x.coming)+answers < kvShare*float64(x.kv)
}

// kvShare of an engine's memory may be promised to decodes.
const kvShare = 0.9

// handsOver tells that the executor that prefilled a turn still has its blocks in its
// engine and gives them to whoever decodes it.
func (r *Router) handsOver(t *turn) bool {
	if !r.cfg.Handover || !t.handed || t.prefillOn == "" {
		return false
	}
	x := r.execs[t.prefillOn]
	return x != nil && x.alive && x.boot == t.prefillBoot
}

// bestDecode is the executor with room that lacks least of the turn in view, in seconds;
// the share of its slots in use counts too, and what its engine still holds. near, when
// given, must use the same memory.
func (r *Router) bestDecode(t *turn, near *executor) *executor {
	if r.cfg.Choose != nil {
		return r.chosen(t, needDecode, near)
	}
	var best *executor
	least := 0.0
	spread := float64(r.cfg.SpreadNS) / 1e9
	plain := near != nil || r.handsOver(t)
	for _, x := range t.in.xs {
		if !x.room[needDecode] || !x.fits(t) || near != nil && x.at != near.at && !r.cfg.Handover {
			continue
		}
		s := spread * float64(len(x.decodes)) / float64(x.slots)
		s -= float64(r.keeps(x)*blockTokens) / r.cfg.ImportTPS
		if !plain {
			s += r.plan(x).seconds
		}
		if best == nil || s < least {
			best, least = x, s
		}
	}
	return best
}

// anyTakes reports whether some living executor takes a turn's need at all.
func (r *Router) anyTakes(t *turn, n need) bool {
	for _, x := range t.in.xs {
		if x.takes[n] && x.fits(t) {
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
	for _, x := range t.in.xs {
		if !x.open() || !x.takes[needAlone] || !x.fits(t) {
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
		if k := t.keeps; k != nil { // which ended, or got another role
			k.reserved = nil
			r.update(k)
		}
		keep.reserved, t.keeps = t, keep
		r.update(keep)
	}
	return nil
}
