package retain

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// rankSlice is how many branches one tick ranks: some 0.5 ms.
const rankSlice = 512

// surveySlice is how many blocks of a table one tick counts by class: some 1 ms.
const surveySlice = 1 << 15

// Next is when Tick wants to be called, in Unix ns; the largest number when there
// is nothing to rank.
func (k *Keeper) Next() int64 {
	if len(k.ring) == 0 || k.cfg.Policy != PolicyWeir {
		return math.MaxInt64
	}
	return k.due
}

// Tick ranks the next branches in turn, so that each is ranked once per EveryNS. It
// looks at 512 at most.
func (k *Keeper) Tick(now int64) {
	if now < k.due || len(k.ring) == 0 || k.cfg.Policy != PolicyWeir {
		return
	}
	for _, p := range k.pools {
		if p.slots != nil {
			p.slots.Survey(surveySlice)
		}
	}
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
	if b.class >= kvtier.ClassWaiting && b.tenant.capped && b.score < b.tenant.floor {
		b.class = kvtier.ClassIdle
	}
	for i, p := range k.pools {
		if p.slots != nil && (b.pool == none || b.pool == i) {
			p.slots.Rank(b.id, b.class, -b.score)
		}
	}
}

// caps finds for each tenant which of its branches may not pin blocks, because
// better ones take its share already.
func (k *Keeper) caps() {
	pinned := map[*tenant]int{}
	for _, b := range k.ring {
		if k.pins(b) {
			pinned[b.tenant] += b.wait.Own
		}
	}
	most := int(k.cfg.TenantShare * float64(k.capacity))
	over := map[*tenant][]*branch{}
	for t, n := range pinned {
		if t.capped = len(k.tenants) > 1 && n > most; t.capped {
			over[t] = nil
		}
	}
	if len(over) == 0 {
		return
	}
	for _, b := range k.ring {
		if _, ok := over[b.tenant]; ok && k.pins(b) {
			over[b.tenant] = append(over[b.tenant], b)
		}
	}
	for t, bs := range over {
		slices.SortFunc(bs, func(a, b *branch) int {
			return cmp.Or(-cmp.Compare(a.score, b.score), cmp.Compare(a.id, b.id))
		})
		room := most
		for _, b := range bs {
			if room -= b.wait.Own; room < 0 {
				t.floor = math.Nextafter(b.score, math.Inf(1))
				break
			}
		}
	}
}

// pins reports whether a branch counts against its tenant's share.
func (k *Keeper) pins(b *branch) bool {
	return b.held && !b.ghost && b.state != schemas.BranchEnded
}
