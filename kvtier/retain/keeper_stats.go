package retain

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// classes is the number of retention classes.
const classes = 4

// Count is what one class held and did, in blocks unless it says bytes.
type Count struct {
	Bytes     int64  // resident now, as of the last look
	Hits      uint64 // found resident when their branch resumed
	Evictions uint64
	Regrets   uint64 // evicted and computed again within a minute
}

// Stats of a Keeper, by class.
type Stats struct {
	Policy    string
	Classes   [classes]Count // indexed by kvtier.Class
	Branches  int            // remembered
	Tenants   int
	Forgotten uint64 // branches dropped for lack of room, or because nothing of them was left
}

// Stats returns the counts since the start.
func (k *Keeper) Stats() Stats {
	counts := k.counts
	for _, p := range k.pools {
		if p.slots == nil {
			continue
		}
		for c, n := range p.slots.Surveyed() {
			counts[c].Bytes += int64(n) * p.block
		}
	}
	return Stats{Policy: k.cfg.Policy, Classes: counts, Branches: len(k.ring), Tenants: len(k.tenants), Forgotten: k.dropped}
}

// Evicted says that a block of that class was evicted from a pool to make room.
func (k *Keeper) Evicted(now int64, pool int, b kvtier.Block, c kvtier.Class) {
	k.counts[c].Evictions++
	k.gone.add(b.Key, now, c)
}

// Sealed says that a block was sealed in a pool. If it was evicted a short time ago,
// that is regretted.
func (k *Keeper) Sealed(now int64, pool int, key kvtier.Key) {
	if c, at, ok := k.gone.take(key); ok && now-at <= k.cfg.RegretNS {
		k.counts[c].Regrets++
	}
}

// regrets remembers the last evicted blocks. Keys are hashes: their first 8 bytes tell
// blocks apart well enough to count by.
type regrets struct {
	at   map[uint64]int32
	ring []regret
	next int
	most int
}

type regret struct {
	key   uint64
	at    int64
	class kvtier.Class
}

func newRegrets(most int) regrets {
	return regrets{at: map[uint64]int32{}, most: max(1, most)}
}

func (r *regrets) add(k kvtier.Key, now int64, c kvtier.Class) {
	key := binary.LittleEndian.Uint64(k[:])
	e := regret{key, now, c}
	if n, ok := r.at[key]; ok {
		r.ring[n] = e
		return
	}
	if len(r.ring) < r.most {
		r.ring = append(r.ring, e)
		r.at[key] = int32(len(r.ring) - 1)
		return
	}
	if n, ok := r.at[r.ring[r.next].key]; ok && int(n) == r.next {
		delete(r.at, r.ring[r.next].key)
	}
	r.ring[r.next] = e
	r.at[key] = int32(r.next)
	r.next = (r.next + 1) % r.most
}

// take returns when and as what a block was evicted, once.
func (r *regrets) take(k kvtier.Key) (kvtier.Class, int64, bool) {
	key := binary.LittleEndian.Uint64(k[:])
	n, ok := r.at[key]
	if !ok {
		return 0, 0, false
	}
	delete(r.at, key)
	return r.ring[n].class, r.ring[n].at, true
}

// Holder is a branch as Explain names it.
type Holder struct {
	Tenant   string              `json:"tenant"`
	Session  string              `json:"session"`
	Branch   string              `json:"branch"`
	State    schemas.BranchState `json:"state"`
	Why      string              `json:"why,omitempty"`
	AtNS     int64               `json:"at_ns,omitempty"` // since when
	Tool     string              `json:"tool,omitempty"`
	ResumeNS int64               `json:"resume_ns,omitempty"` // when it is expected back, if somebody said so
	Class    string              `json:"class"`
	Score    float64             `json:"score"`
	Tail     string              `json:"tail,omitempty"` // key of the last block of its context
	Blocks   int                 `json:"blocks"`
	Resident int                 `json:"resident"`
	Own      int                 `json:"own"`
	Rank     kvtier.Class        `json:"-"`
	// Lost is why blocks of it were given up last, and LostNS when.
	Lost   string `json:"lost,omitempty"`
	LostNS int64  `json:"lost_ns,omitempty"`
}

// Describe returns what is known of the branch of that number.
func (k *Keeper) Describe(id kvtier.BranchID) (Holder, bool) {
	b := k.byID[id]
	if b == nil {
		b = k.past[id] // it gave up what it held under that number
	}
	if b == nil {
		return Holder{}, false
	}
	return k.describe(b), true
}

func (k *Keeper) describe(b *branch) Holder {
	h := Holder{
		Tenant: b.wait.Tenant, Session: b.wait.Session, Branch: b.wait.Branch, State: b.state, Why: b.why, AtNS: b.at,
		Tool: b.wait.Tool, ResumeNS: b.wait.Hint, Class: b.class.String(), Score: b.score, Blocks: b.blocks,
		Rank: b.class, Lost: b.lost.why, LostNS: b.lost.at,
	}
	if !b.tail.IsZero() {
		h.Tail = b.tail.String()
	}
	h.Resident, h.Own = k.find(b)
	return h
}

// Session returns what is known of the branches of a session, by name.
func (k *Keeper) Session(tenant, session string) (out []Holder) {
	for _, b := range k.ring {
		if b.wait.Tenant == tenant && b.wait.Session == session && !b.ghost {
			out = append(out, k.describe(b))
		}
	}
	slices.SortFunc(out, func(a, b Holder) int { return cmp.Compare(a.Branch, b.Branch) })
	return out
}
