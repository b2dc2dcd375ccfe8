package sim

import (
	"fmt"

	"github.com/weir-dev/weir/kvtier/retain"
	"github.com/weir-dev/weir/schemas"
)

// memory stands in for the host tier at the grain of one context: what is held of a
// context are its leading blocks, and it loses them from its end on, as leaf-first
// eviction does where contexts share nothing but what their class shares.
type memory struct {
	w     *world
	order Order
	nodes []*node
	est   *retain.Estimator
	queue int64 // predicted wait of a turn, ns, as the keeper of a live node learns it

	// handed is which engine holds the prompt of a turn that was just prefilled.
	handed map[string]handed
}

type handed struct {
	exec   int
	blocks int
}

// ctxKey names a context: a session and how often it was compacted, or what a class
// shares (epoch shared).
type ctxKey struct {
	uid   uint64
	epoch uint32
}

const sharedEpoch = 1 << 31

// node is one host memory with its own order of eviction.
type node struct {
	m     *memory
	id    string
	total int // blocks
	used  int
	held  map[ctxKey]*held
	lru   list // least recently used first
	dead  list // contexts that nobody comes back to, likewise; weir's order only
	rank  ranking
	note  notices
}

// held is what a node holds of one context.
type held struct {
	key    ctxKey
	base   *held // what the class shares, which comes before; nil for none
	chain  chain
	from   int    // blocks before it that base holds
	blocks int    // leading blocks, those of base included
	parts  []part // which tray holds them
	ends   []int  // block counts that notices named
	refs   int    // of a base: contexts that build on it
	used   schemas.Time
	branch *branch // nil for a base
	el     elem
	isDead bool
}

// part is a run of blocks up to an end that one tray holds.
type part struct{ tray, end int }

// branch is the state of a session, as lineage tells it to the nodes.
type branch struct {
	wait  retain.Wait
	epoch uint32
	ended bool
}

func newMemory(w *world) *memory {
	m := &memory{w: w, order: w.sys.Order, est: retain.NewEstimator(retain.Options{}), handed: map[string]handed{}}
	per := int(w.sc.Cluster.HostGB * 1e9 / float64(w.cal.Mem.KVBytesTok) / blockTokens)
	n := len(w.execs)
	switch w.sys.Tier {
	case TierShared:
		m.nodes = []*node{m.node("n0", per*n)}
	case TierPrivate, TierNone:
		if w.sys.Tier == TierNone {
			per = 0
		}
		for i := range n {
			m.nodes = append(m.nodes, m.node(fmt.Sprintf("n%d", i), per))
		}
	}
	return m
}

func (m *memory) node(id string, blocks int) *node {
	n := &node{m: m, id: id, total: blocks, held: map[ctxKey]*held{}}
	n.note.n = n
	return n
}

// of is the memory of one executor.
func (m *memory) of(exec int) *node {
	if len(m.nodes) == 1 {
		return m.nodes[0]
	}
	return m.nodes[exec]
}

// lost forgets a private memory, whose executor has ended.
func (m *memory) lost(now schemas.Time, exec int) {
	for job, h := range m.handed {
		if h.exec == exec {
			delete(m.handed, job)
		}
	}
	if len(m.nodes) == 1 {
		return
	}
	n := m.nodes[exec]
	n.held, n.used, n.lru, n.dead, n.rank = map[ctxKey]*held{}, 0, list{}, list{}, ranking{}
	n.note.cleared(now)
}

// view is the memory as one executor sees it: gpuexec/simgpu's Memory.
type view struct {
	m    *memory
	exec int
}

// Have is how many leading blocks of a turn's context the node holds, and whether most
// of them are on another tray.
func (v view) Have(r *schemas.Ready) (blocks int, far bool) {
	n := v.m.of(v.exec)
	h := n.find(v.m.w.session(r))
	if h == nil {
		return 0, false
	}
	away, at := 0, 0
	for _, p := range h.all() {
		if p.tray != v.exec {
			away += p.end - at
		}
		at = p.end
	}
	return h.blocks, 2*away > h.blocks
}

// Handed is how many blocks the engine of the executor that had the turn before holds.
func (v view) Handed(r *schemas.Ready, from string) int {
	h, ok := v.m.handed[r.Job]
	if !ok || v.m.w.execs[h.exec].id != from {
		return 0
	}
	return h.blocks
}

// Use notes that a turn read what is held of its prompt.
func (v view) Use(now schemas.Time, r *schemas.Ready) {
	n := v.m.of(v.exec)
	if h := n.find(v.m.w.session(r)); h != nil {
		n.touch(now, h)
	}
}

// Seal keeps the leading blocks of a turn's sequence; skipped is how many did not fit.
func (v view) Seal(now schemas.Time, r *schemas.Ready, blocks int) (skipped int) {
	v.m.handed[r.Job] = handed{v.exec, blocks}
	n := v.m.of(v.exec)
	if n.total == 0 {
		return 0 // there is no tier, and nothing that was to be kept
	}
	return n.seal(now, v.m.w.session(r), blocks, v.exec)
}

// find returns what is held of a session's context, or of what its class shares.
func (n *node) find(s *session) *held {
	if h := n.held[ctxKey{s.uid, s.epoch}]; h != nil {
		return h
	}
	if s.chain.shared > 0 {
		return n.held[ctxKey{s.w.seedOfClass, sharedEpoch}]
	}
	return nil
}

// all is which trays hold the blocks, from the root on.
func (h *held) all() []part {
	if h.base == nil {
		return h.parts
	}
	return append(append([]part(nil), h.base.parts...), h.parts...)
}

func (n *node) touch(now schemas.Time, h *held) {
	h.used = now
	n.lru.toBack(h)
	if h.base != nil {
		n.touch(now, h.base)
	}
}

func (n *node) seal(now schemas.Time, s *session, blocks, tray int) (skipped int) {
	base := n.base(now, s, blocks, tray)
	key := ctxKey{s.uid, s.epoch}
	h := n.held[key]
	have := 0
	switch {
	case h != nil:
		have = h.blocks
		n.touch(now, h)
	case base != nil:
		have = base.blocks
		n.touch(now, base)
		if have < s.chain.shared {
			return max(0, blocks-have) // the base itself did not fit
		}
	}
	if blocks <= have {
		return 0
	}
	got := n.room(now, blocks-have, h, base)
	if got == 0 {
		return blocks - have
	}
	if h == nil {
		h = &held{key: key, chain: s.chain, base: base, blocks: have, branch: s.branch, used: now}
		if base != nil {
			h.from = base.blocks
			base.refs++
		}
		n.held[key] = h
		n.lru.toBack(h)
		n.rank.stale()
	}
	n.grow(now, h, have+got, tray)
	return blocks - have - got
}

// base holds what a class shares, as far as a context reaches into it.
func (n *node) base(now schemas.Time, s *session, blocks, tray int) *held {
	if s.chain.shared == 0 {
		return nil
	}
	key := ctxKey{s.w.seedOfClass, sharedEpoch}
	b := n.held[key]
	want := min(blocks, s.chain.shared)
	if b != nil && b.blocks >= want {
		return b
	}
	have := 0
	if b != nil {
		have = b.blocks
	}
	got := n.room(now, want-have, b, nil)
	if got == 0 {
		return b
	}
	if b == nil {
		b = &held{key: key, chain: s.chain, used: now}
		b.chain.stops = nil
		n.held[key] = b
		n.lru.toBack(b)
		n.rank.stale()
	}
	n.grow(now, b, have+got, tray)
	return b
}

func (n *node) grow(now schemas.Time, h *held, to, tray int) {
	n.used += to - h.blocks
	n.note.stored(now, h, h.blocks, to)
	h.blocks = to
	if k := len(h.parts); k > 0 && h.parts[k-1].tray == tray {
		h.parts[k-1].end = to
	} else {
		h.parts = append(h.parts, part{tray, to})
	}
	h.used = now
}

// room makes room for so many blocks and returns how many there is room for.
func (n *node) room(now schemas.Time, want int, keep ...*held) int {
	for n.total-n.used < want {
		h := n.victim(now, keep)
		if h == nil {
			break
		}
		n.cut(now, h, want-(n.total-n.used))
	}
	return min(want, max(0, n.total-n.used))
}

// cut takes at least so many blocks, or all there are, from the end of a context. It
// ends at a stop, so that what is left has a name.
func (n *node) cut(now schemas.Time, h *held, blocks int) {
	left := max(h.from, h.blocks-blocks)
	stop := 0
	for next := schemas.NextStop(0); next <= left; next = schemas.NextStop(next) {
		stop = next
	}
	if left = max(stop, h.from); left == h.from {
		left = h.from
	}
	n.used -= h.blocks - left
	n.w().evicted += int64(h.blocks - left)
	n.note.evicted(now, h, left)
	h.blocks = left
	for k := len(h.parts) - 1; k >= 0; k-- {
		from := h.from
		if k > 0 {
			from = h.parts[k-1].end
		}
		if from >= left {
			h.parts = h.parts[:k]
			continue
		}
		h.parts[k].end = min(h.parts[k].end, left)
		break
	}
	if h.blocks > h.from {
		return
	}
	delete(n.held, h.key)
	n.lru.remove(h)
	n.dead.remove(h)
	if h.base != nil {
		h.base.refs--
	}
}

func (n *node) w() *world { return n.m.w }

// check is invariant 3: what is held and what is free is all there is.
func (n *node) check() error {
	sum := 0
	for _, h := range n.held {
		sum += h.blocks - h.from
	}
	if sum != n.used || n.used > n.total {
		return fmt.Errorf("node %s holds %d blocks, counted %d, of %d", n.id, sum, n.used, n.total)
	}
	return nil
}
