package hostmem

import (
	"time"

	"github.com/weir-dev/weir/kvtier"
)

// Gone is what the daemon remembers of a block that it does not hold.
type Gone struct {
	AtNS int64 // when it went, Unix time; 0 when it was not there, or that is not known
	// Rule says why it went; empty when it was never kept.
	Rule string
}

// The rules by which blocks go.
const (
	RuleLRU       = "lru"          // room was needed, and it was the leaf used longest ago
	RuleDead      = "dead"         // room was needed, and its context was replaced or its branch had ended
	RuleIdle      = "idle"         // room was needed, and no live branch held it: of those, the one used longest ago
	RuleWaiting   = "waiting"      // room was needed, and its branch was expected back last
	RuleCleared   = "cleared"      // a person asked for an empty memory
	RuleChecksum  = "checksum"     // its bytes were not those that were sealed
	RuleWriter    = "writer_death" // its writer died before its bytes were known to be whole
	RulePool      = "pool_closed"  // its model is not served any more, and another one needed the memory
	RuleErased    = "erase"        // its session was deleted
	RuleDisk      = "on_disk"      // it left memory and lies on disk, but could not be read in time
	RuleForgotten = "forgotten"    // longer ago than the daemon remembers, or never kept
)

// ruleRoom: room was needed. The block's class says which rule that is.
const ruleRoom = ""

// rememberMost is the number of blocks that a daemon remembers: of 2 MB each, those
// of the last 128 GB. A full memory of them takes 14 MB.
const rememberMost = 64 << 10

// grave is one block that went.
type grave struct {
	key, parent kvtier.Key
	at          int64
	gen         uint64 // of the slot, as long as its bytes may still be there
	pool        *pool  // nil once its file is gone
	slot        uint32
	rule        string
}

// graves remembers the last blocks that went, in a ring. The daemon's loop owns it.
type graves struct {
	ring []grave
	next int // the oldest one, once the ring is full
	most int
	at   map[kvtier.Key]int
	// whole: no block went that is not in the ring.
	whole bool
}

func newGraves(most int, whole bool) *graves {
	return &graves{most: most, at: map[kvtier.Key]int{}, whole: whole}
}

func (g *graves) add(e grave) {
	if before := g.find(e.key); before != nil {
		before.abandoned()
	}
	i := g.next
	if len(g.ring) < g.most {
		i = len(g.ring)
		g.ring = append(g.ring, e)
	} else {
		g.ring[i].abandoned()
		if old := g.ring[i].key; g.at[old] == i {
			delete(g.at, old)
		}
		g.ring[i], g.next, g.whole = e, (i+1)%g.most, false
	}
	g.at[e.key] = i
}

func (g *graves) find(k kvtier.Key) *grave {
	i, ok := g.at[k]
	if !ok {
		return nil
	}
	return &g.ring[i]
}

// remember says why the block in slot id went.
func (p *pool) remember(id kvtier.SlotID, b kvtier.Block, rule string) {
	_, gen := p.slots.State(id)
	p.graves.add(grave{key: b.Key, parent: b.Parent, at: time.Now().UnixNano(), gen: gen, pool: p, slot: uint32(id), rule: rule})
}

// leave forgets where the blocks of a pool lay: its file is going.
func (g *graves) leave(p *pool) {
	for i := range g.ring {
		if g.ring[i].pool == p {
			g.ring[i].pool = nil
		}
	}
}

// why is what is remembered of a key; ok is false for a block that is there.
func (d *Daemon) why(k kvtier.Key) (g Gone, ok bool) {
	for _, p := range d.pools {
		if _, found := p.slots.Find(k); found {
			return Gone{}, false
		}
	}
	if d.spill != nil {
		if _, onDisk := d.spill.store.Parent(k); onDisk {
			g := Gone{Rule: RuleDisk}
			if e := d.graves.find(k); e != nil {
				g.AtNS = e.at
			}
			return g, true
		}
	}
	switch e := d.graves.find(k); {
	case e != nil:
		return Gone{AtNS: e.at, Rule: e.rule}, true
	case d.graves.whole:
		return Gone{}, true
	}
	return Gone{Rule: RuleForgotten}, true
}

// Why says what became of a block that is not there. ok is false when it is there.
func (d *Daemon) Why(k kvtier.Key) (g Gone, ok bool, err error) {
	err = d.call(func() { g, ok = d.why(k) })
	return g, ok, err
}
