package route

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/weir-dev/weir/schemas"
)

func jobMsgID(r *schemas.Ready, stage schemas.Stage, attempt int) string {
	return r.MsgID("job") + ":" + string(stage) + ":" + strconv.Itoa(attempt)
}

// heartbeat learns what an executor can take and holds, and repairs what was lost
// on the way: jobs, dones and cancels.
func (r *Router) heartbeat(now schemas.Time, h *schemas.Heartbeat, out []schemas.Msg) []schemas.Msg {
	x := r.execs[h.Executor]
	if h.Dead {
		if x != nil && (h.Boot == "" || h.Boot == x.boot) && x.alive {
			x.gone = x.boot
			out = r.lost(now, x, !h.Outside, h.Cause, out)
		}
		return out
	}
	if x != nil && h.Boot == x.gone && h.Boot != "" {
		return out // sent before that life ended
	}
	if x == nil {
		if len(r.execs) >= r.cfg.MaxExecutors {
			r.counts.Ignored++
			return out
		}
		x = &executor{id: h.Executor, prefills: map[string]*turn{}, decodes: map[string]*turn{}}
		r.execs[h.Executor] = x
		i := sort.SearchStrings(r.ids, h.Executor)
		r.ids = append(r.ids, "")
		copy(r.ids[i+1:], r.ids[i:])
		r.ids[i] = h.Executor
	}
	if x.boot != "" && x.boot != h.Boot {
		x.gone = x.boot
		if x.alive {
			// A new life without word from a supervisor: the old one ended by itself.
			out = r.lost(now, x, true, "the process started again", out)
		}
	}
	x.closed = false
	r.join(x, h.Pool)
	if x.context != h.Context || x.role != h.Role || !x.alive {
		x.in.refit = true
	}
	x.boot, x.role, x.classes, x.epoch, x.slots, x.context = h.Boot, h.Role, h.Classes, h.Epoch, h.Slots, h.Context
	x.size, x.kv, x.absorb = max(h.Size, 1), h.KVTokens, h.Absorb
	x.tier, x.rate = h.TierBlocks, h.DecodeTPS
	x.lastHB, x.alive = now, true
	if h.PrefillTPS > 0 {
		x.tps, x.in.tps = h.PrefillTPS, h.PrefillTPS
	}
	x.bring, x.at = h.BringTPS, r.dir.node(h.Node)
	r.engines.set(x, h.Kept[:min(len(h.Kept), max(h.Slots, 0))])
	out = r.compare(now, x, h, out)
	r.update(x)
	return out
}

// compare sets what an executor says it holds against what was placed on it.
func (r *Router) compare(now schemas.Time, x *executor, h *schemas.Heartbeat, out []schemas.Msg) []schemas.Msg {
	r.beats++
	for _, j := range h.Held {
		t := r.turns[j.Job]
		switch {
		case t == nil:
			if r.settled(now) {
				out = append(out, r.cancelMsg(x.id, j.Job, j.Attempt, "the turn has ended"))
			}
			continue
		case t.state == stateFailing || j.Attempt < t.attempt && t.state == statePlaced:
			out = append(out, r.cancelMsg(x.id, j.Job, j.Attempt, "an older attempt"))
			continue
		case t.state == stateWaiting && !r.settled(now),
			t.state == statePlaced && later(t, x, j):
			r.adopt(now, t, x, j)
		}
		if t.exec == x {
			t.beat, t.missing = r.beats, 0
		}
	}
	var lost []*turn
	for _, ts := range [...]map[string]*turn{x.prefills, x.decodes} {
		for _, t := range ts {
			if t.exec != x || t.beat == r.beats || int64(now-t.placedAt) < 2*r.cfg.HeartbeatNS {
				continue
			}
			if t.missing++; t.missing >= 2 {
				lost = append(lost, t)
			}
		}
	}
	sortTurns(lost)
	for _, t := range lost {
		r.counts.Lost++
		out = r.again(now, t, out)
	}
	return out
}

func sortTurns(ts []*turn) {
	slices.SortFunc(ts, func(a, b *turn) int { return cmp.Compare(a.order, b.order) })
}

// later reports whether what an executor holds comes after what the router knows.
// Within an attempt prefill comes before decode, so a heartbeat that was sent
// before the hand-over says nothing.
func later(t *turn, x *executor, j schemas.Held) bool {
	if j.Attempt != t.attempt {
		return j.Attempt > t.attempt
	}
	if t.stage != j.Stage {
		return j.Stage == schemas.StageDecode
	}
	return t.exec != x
}

// adopt takes over a placement that the executor knows and this router does not:
// after a restart of the router, or when a done was lost.
func (r *Router) adopt(now schemas.Time, t *turn, x *executor, j schemas.Held) {
	r.release(t)
	r.unwait(t)
	t.state, t.stage, t.exec, t.attempt, t.placedAt = statePlaced, j.Stage, x, j.Attempt, now
	// An executor that was silent for long may hold an attempt from before others.
	t.used, t.handed = max(t.used, j.Attempt), false
	if j.Alone && !t.alone {
		// An earlier router saw it held by an executor that ended by itself.
		t.alone, t.deaths = true, max(1, t.deaths)
	}
	if t.alone && x.alone == nil {
		x.alone = t
	}
	if j.Stage == schemas.StagePrefill {
		x.prefills[t.ready.Job] = t
		r.look(now, t)
		t.charged = r.planFor(x, t).compute * blockTokens
		x.tokens += t.charged
	} else {
		x.decodes[t.ready.Job] = t
		x.occupy(t)
	}
	r.update(x)
}

// onExecutor lists the turns placed on x in order of arrival.
func (r *Router) onExecutor(x *executor) []*turn {
	var ts []*turn
	for _, t := range x.prefills {
		ts = append(ts, t)
	}
	for _, t := range x.decodes {
		if t.exec == x {
			ts = append(ts, t)
		}
	}
	sortTurns(ts)
	return ts
}

// lost takes an executor's turns away. guilty: the process ended by itself, so
// one of its turns may have ended it. Those are then run alone: only the one that
// did it can end a second executor.
func (r *Router) lost(now schemas.Time, x *executor, guilty bool, cause string, out []schemas.Msg) []schemas.Msg {
	ts := r.onExecutor(x)
	for _, t := range x.decodes {
		if t.exec != x { // a slot kept for a prefill elsewhere
			t.decodeOn = nil
		}
	}
	for _, t := range ts {
		x.vacate(t)
	}
	x.prefills, x.decodes, x.tokens, x.coming, x.alone = map[string]*turn{}, map[string]*turn{}, 0, 0, nil
	if x.reserved != nil {
		x.reserved.keeps, x.reserved = nil, nil
	}
	x.alive, x.closed = false, false
	r.engines.set(x, nil)
	if x.in != nil {
		x.in.refit = true
		r.update(x)
	}
	if guilty {
		r.counts.Deaths++
	}
	for _, t := range ts {
		t.exec = nil
		t.lostOn(x, now)
		if guilty {
			t.deaths++
			t.alone = true
		}
		if t.deaths >= r.cfg.MaxDeaths {
			r.counts.Poisoned++
			f := &schemas.Failure{
				Code:    schemas.CodePoison,
				Message: fmt.Sprintf("the turn ended %d executors, the last one by: %s; it is not tried again", t.deaths, cause),
			}
			out = r.fail(now, t, f, append(out, r.dead(now, t, f)))
			continue
		}
		out = r.again(now, t, out)
	}
	return out
}

// reap looks at liveness, deadlines and failures that are not stored yet.
func (r *Router) reap(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	if !r.busGone && int64(now-r.busBack) > r.cfg.GraceNS {
		for _, id := range r.ids {
			x := r.execs[id]
			// Silence counts from when the bus was back at the earliest.
			if x.alive && int64(now-max(x.lastHB, r.busBack)) > r.cfg.SilentNS {
				r.counts.Silent++
				out = r.lost(now, x, false, "no heartbeat", out)
			}
		}
	}
	r.forgetExecutors(now)
	for t := r.late.first(); t != nil && int64(now) > t.ready.DeadlineNS; t = r.late.first() {
		r.late.remove(t)
		if t.state == stateFailing {
			continue
		}
		where := "it waited for an executor"
		if t.exec != nil {
			where = fmt.Sprintf("it was in %s on %s", t.stage, t.exec.id)
		}
		out = r.fail(now, t, &schemas.Failure{Code: schemas.CodeDeadline, Message: "the turn's deadline has passed while " + where}, out)
	}
	for _, t := range r.failing {
		if !r.busGone && int64(now-t.failAt) > 10*r.cfg.TickNS {
			out = r.publishFailure(now, t, out)
		}
	}
	return out
}

// forgetExecutors removes executors that have been away for long, so that a cell
// whose executors get new names does not fill the map.
func (r *Router) forgetExecutors(now schemas.Time) {
	kept := r.ids[:0]
	for _, id := range r.ids {
		if x := r.execs[id]; !x.alive && int64(now-x.lastHB) > r.cfg.ForgetNS {
			r.leave(x)
			delete(r.execs, id)
			continue
		}
		kept = append(kept, id)
	}
	r.ids = kept
}
