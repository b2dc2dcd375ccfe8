package hostmem

import (
	"fmt"
	"math"
	"time"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/retain"
	"github.com/weir-dev/weir/schemas"
)

// The orders of Config.Order.
const (
	OrderWeir = retain.PolicyWeir // by what the agents' branches still need
	OrderLRU  = retain.PolicyLRU  // leaf-first by last use
)

// checkOrder reports an order that does not exist.
func checkOrder(order string) error {
	switch order {
	case "", OrderWeir, OrderLRU:
		return nil
	}
	return fmt.Errorf("%w: %q; use %s or %s", ErrOrder, order, OrderWeir, OrderLRU)
}

// enlist puts a pool's table under the daemon's order.
func (d *Daemon) enlist(p *pool) {
	taken := map[int]bool{}
	for _, q := range d.pools {
		taken[q.number] = true
	}
	for p.number = 0; taken[p.number]; p.number++ {
	}
	p.keeper = d.keeper
	d.keeper.Add(p.number, p.slots, p.block)
}

// Branch says where a branch of an agent stands, so that its blocks are evicted
// accordingly. It may be said again at any time. Branches are learned anew after a
// start; until then their blocks go by last use.
func (d *Daemon) Branch(c *schemas.BranchChange) {
	d.do(func() { d.keeper.Branch(time.Now().UnixNano(), c) })
}

// rank ranks branches anew if that is due.
func (d *Daemon) rank(now time.Time) { d.keeper.Tick(now.UnixNano()) }

// nextRank is how long until then. It is a second at most, for the clock may be set back.
func (d *Daemon) nextRank(now time.Time) time.Duration {
	next := d.keeper.Next()
	if next == math.MaxInt64 {
		return never
	}
	return min(time.Second, max(0, time.Duration(next-now.UnixNano())))
}

// ruleOf is the rule by which a block of that class goes when room is needed.
func (p *pool) ruleOf(c kvtier.Class) string {
	if p.keeper.Policy() == OrderLRU {
		return RuleLRU
	}
	switch c {
	case kvtier.ClassDead:
		return RuleDead
	case kvtier.ClassIdle:
		return RuleIdle
	default:
		return RuleWaiting
	}
}

// Retention returns what the order brought since this daemon started, by class.
func (d *Daemon) Retention() (retain.Stats, error) {
	var s retain.Stats
	err := d.call(func() { s = d.keeper.Stats() })
	return s, err
}

// Bounds of BlockInfo.
const (
	orderLook   = 1024 // leaves that go next among which a block's place is looked for
	maxHolders  = 16
	maxAskedFor = 4096
)

// BlockInfo is what the daemon knows of one block, for people.
type BlockInfo struct {
	Key     kvtier.Key
	There   bool
	Pool    string
	Parent  kvtier.Key
	Index   int
	Leaf    bool
	Leased  bool
	Class   kvtier.Class
	UseNS   int64 // last use, Unix time
	Holders []retain.Holder
	More    int // holders that are not listed
	// First is the branch that had it first, when nobody holds it any more.
	First *retain.Holder
	Whole bool // all blocks before it are there too
	// Place is how many leaves go before it, and that it is one; -1 when it is no leaf,
	// is behind the first 1,024, or is not evicted at all.
	Place int
	Gone  Gone // when it is not there
}

// Blocks says of each key what the daemon knows, of the first 4,096.
func (d *Daemon) Blocks(keys []kvtier.Key) ([]BlockInfo, error) {
	keys = keys[:min(len(keys), maxAskedFor)]
	out := make([]BlockInfo, 0, len(keys))
	err := d.call(func() {
		places := map[*pool]map[kvtier.SlotID]int{}
		for _, k := range keys {
			p, id, ok := d.locate(k)
			if !ok {
				g, _ := d.why(k)
				out = append(out, BlockInfo{Key: k, Gone: g, Place: -1})
				continue
			}
			if places[p] == nil {
				places[p] = map[kvtier.SlotID]int{}
				for i, leaf := range p.slots.Order(orderLook, nil) {
					places[p][leaf] = i
				}
			}
			out = append(out, d.block(p, id, places[p]))
		}
	})
	return out, err
}

// block describes the block in a slot. Its class is the best of those who hold it.
func (d *Daemon) block(p *pool, id kvtier.SlotID, places map[kvtier.SlotID]int) BlockInfo {
	b, _ := p.slots.Get(id)
	class, _ := p.slots.ClassOf(id)
	i := BlockInfo{
		Key: b.Key, There: true, Pool: p.pool, Parent: b.Parent, Index: b.Index, Leaf: p.slots.Leaf(id), Leased: p.Leased(id),
		Class: class, UseNS: p.LastUse(id), Place: -1, Whole: p.slots.Whole(id),
	}
	if n, ok := places[id]; ok {
		i.Place = n
	}
	for _, h := range p.slots.Holders(id, nil) {
		x, ok := d.keeper.Describe(h)
		if !ok {
			continue
		}
		i.Class = max(i.Class, x.Rank)
		if len(i.Holders) < maxHolders {
			i.Holders = append(i.Holders, x)
		} else {
			i.More++
		}
	}
	if len(i.Holders) == 0 {
		first, _ := p.slots.First(id)
		if h, ok := d.keeper.Describe(first); ok {
			i.First = &h
		}
	}
	return i
}

// Branches lists what is known of the branches of a session, by name.
func (d *Daemon) Branches(tenant, session string) ([]retain.Holder, error) {
	var out []retain.Holder
	err := d.call(func() { out = d.keeper.Session(tenant, session) })
	return out, err
}

// Order is the order in which blocks are evicted.
func (d *Daemon) Order() string { return d.keeper.Policy() }
