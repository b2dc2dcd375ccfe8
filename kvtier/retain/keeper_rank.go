package retain

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// rankSlice is how many branches one tick ranks: some 0.1 ms.
const rankSlice = 64

// surveySlice is how many blocks of a table a tick counts by class, some 0.1 ms, and
// surveyNS how often one does.
const (
	surveySlice = 1 << 12
	surveyNS    = 500e6
)

// Next is when Tick wants to be called, in Unix ns; the largest number when there
// is nothing to rank.
func (k *Keeper) Next() int64 {
	if len(k.ring) == 0 || k.cfg.Policy != PolicyWeir {
		return math.MaxInt64
	}
	return k.due
}

// Tick ranks the next branches in turn, so that each is ranked once per EveryNS. It
// looks at 64 at most.
func (k *Keeper) Tick(now int64) {
	if len(k.ring) == 0 || k.cfg.Policy != PolicyWeir {
		return
	}
	if early := k.due - now; early > 0 && early <= max(1e6, k.cfg.EveryNS) { // more: the clock was set back
		return
	}
	k.survey(now)
	for range min(rankSlice, len(k.ring)) {
		if k.at >= len(k.ring) {
			k.at = 0
			k.caps()
		}
		b := k.ring[k.at]
		k.trim(b)
		k.rank(now, b)
		if b.ghost {
			if resident, _ := k.find(b); resident == 0 {
				k.forget(b) // another one stands in its place
				if len(k.ring) == 0 {
					return
				}
				continue
			}
		}
		k.at++
	}
	k.due = now + max(1e6, k.cfg.EveryNS*int64(min(rankSlice, len(k.ring)))/int64(max(1, len(k.ring))))
}

// survey counts some more of the blocks by class.
func (k *Keeper) survey(now int64) {
	if now < k.surveyed+surveyNS && now >= k.surveyed {
		return
	}
	k.surveyed = now
	for _, p := range k.pools {
		if p.slots != nil {
			p.slots.Survey(surveySlice)
		}
	}
}

// rank tells the tables how much a branch is needed now.
func (k *Keeper) rank(now int64, b *branch) {
	if !b.held {
		b.class = kvtier.ClassDead
		return
	}
	_, b.wait.Own = k.find(b)
	w := b.wait
	level := k.credit.Level(now, b.tenant.name)
	var c Class
	switch {
	case level == LevelLRU || b.ghost:
		w.Hint = 0
		w.Began = b.used
		c, b.score = k.est.Recency(now, &w)
	case b.state == schemas.BranchEnded:
		c, b.score = ClassIdle, 0
	default:
		if level < LevelHints && !w.Inferred {
			w.Hint = 0
		}
		c, b.score = k.est.Score(now, &w)
	}
	b.class = kvtier.Class(c)
	if b.class >= kvtier.ClassWaiting && b.over {
		b.class = kvtier.ClassIdle
	}
	for i, p := range k.pools {
		if p.slots != nil && (b.pool == none || b.pool == i) {
			p.slots.Rank(b.id, b.class, -b.score)
		}
	}
	if k.below != nil {
		k.below.Rank(b.id, b.class, -b.score)
	}
}

// Bounds of the predicted wait of a turn: the mean of about 16 turns, of which one
// counts for 10 minutes at most.
const (
	queueTurns = 16
	maxQueue   = 600e9
)

// queued learns from a turn that waited so long, in ns, before an engine took it.
func (k *Keeper) queued(ns int64) {
	k.queue += (min(ns, maxQueue) - k.queue) / queueTurns
	k.est.Queue(k.queue)
}

// caps finds for each tenant which of its branches may not pin blocks, because
// better ones take its share already.
func (k *Keeper) caps() {
	pinned := map[*tenant]int{}
	for _, b := range k.ring {
		b.over = false
		if k.pins(b) {
			pinned[b.tenant] += b.wait.Own
		}
	}
	most := int(k.cfg.TenantShare * float64(k.capacity))
	var bs []*branch
	for _, b := range k.ring {
		if pinned[b.tenant] > most && len(k.tenants) > 1 && k.pins(b) {
			bs = append(bs, b)
		}
	}
	slices.SortFunc(bs, func(a, b *branch) int {
		return cmp.Or(-cmp.Compare(a.score, b.score), cmp.Compare(a.id, b.id))
	})
	clear(pinned)
	for _, b := range bs {
		pinned[b.tenant] += b.wait.Own
		b.over = pinned[b.tenant] > most
	}
}

// pins reports whether a branch counts against its tenant's share.
func (k *Keeper) pins(b *branch) bool {
	return b.held && !b.ghost && b.state != schemas.BranchEnded
}
