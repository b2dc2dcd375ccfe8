package replay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/retain"
)

// Policy names an order of eviction.
type Policy string

// The policies.
const (
	// Weir is the shipped table and keeper, which hear of branches.
	Weir Policy = "weir"
	// LRU evicts the block that was used longest ago, wherever it stands; a prompt uses
	// its blocks from the first one to the last, as an engine's own cache does.
	LRU Policy = "lru"
	// LeafLRU is the shipped table without branches: leaves only, by last use.
	LeafLRU Policy = "leaf-lru"
	// SessionRef keeps leaves that a session refers to over others: SGLang's rule.
	SessionRef Policy = "session-ref"
	// TTL pins a context for as long as nine in ten waits of its class take.
	TTL Policy = "ttl"
	// Belady evicts what is used again last. It knows the future: nothing does better.
	Belady Policy = "belady"
)

// Policies are all of them, those that a reader compares first.
var policies = []Policy{Weir, LRU, LeafLRU, SessionRef, TTL, Belady}

// Policies lists the names of all policies.
func Policies() []Policy { return slices.Clone(policies) }

// ErrPolicy is what the errors of Run about its arguments wrap.
var ErrPolicy = errors.New("replay: the policy cannot be run")

// Result is what a policy found of a load with a tier of some size. Tokens of a prompt
// are found when they stand in its leading blocks that are in memory.
type Result struct {
	Policy     Policy  `json:"policy"`
	Mode       Mode    `json:"mode"`
	Load       string  `json:"load"`
	Seed       uint64  `json:"seed"`
	Capacity   int64   `json:"capacity"` // tokens
	Calls      int     `json:"calls"`
	Prompt     int64   `json:"prompt_tokens"`
	Found      int64   `json:"found_tokens"`
	HitRate    float64 `json:"hit_rate"`
	Recomputed int64   `json:"recomputed_tokens"` // missed, and computed before
	// Evictions are blocks by the class they had; policies without classes have only
	// idle ones. Regrets are those of them that were computed again within a minute.
	// Refused are blocks for which nothing could be evicted.
	Evictions map[string]int64 `json:"evictions"`
	Regrets   map[string]int64 `json:"regrets"`
	Refused   int64            `json:"refused,omitempty"`
	// Looks are the prompts, in the order in which the log looks them up.
	Looks []Look `json:"-"`
	// GapClosed is the share of the gap between LRU, or leaf-first LRU, and Belady on
	// the same load that this policy closes; it is set by Compare.
	GapClosed     *float64 `json:"gap_closed,omitempty"`
	GapClosedLeaf *float64 `json:"gap_closed_leaf,omitempty"`
}

// Look is one prompt and what of it was found, in tokens.
type Look struct{ In, Found int32 }

// Run replays a log with a tier of capacity tokens.
func Run(l *Log, p Policy, capacity int64) (*Result, error) {
	return RunConfig(l, p, capacity, retain.Config{})
}

// RunConfig is Run with another configuration of the keeper; its Policy field does not
// count.
func RunConfig(l *Log, p Policy, capacity int64, cfg retain.Config) (*Result, error) {
	blocks := capacity / blockTokens
	if blocks < 1 || blocks > kvtier.MaxSlots {
		return nil, fmt.Errorf("%w: a capacity of %d tokens; it must be %d to %d", ErrPolicy, capacity, blockTokens, int64(kvtier.MaxSlots)*blockTokens)
	}
	m := newMeter(l, p, capacity)
	switch p {
	case Weir, LeafLRU:
		newTier(m, int(blocks), cfg).run()
	case LRU:
		newRecency(m, int32(blocks)).run()
	case SessionRef:
		newLeaves(m, int32(blocks), sessionRefs(l)).run()
	case TTL:
		newLeaves(m, int32(blocks), pins(l)).run()
	case Belady:
		newOracle(m, int32(blocks)).run()
	default:
		names := make([]string, len(policies))
		for i, p := range policies {
			names[i] = string(p)
		}
		return nil, fmt.Errorf("%w: %q is not known, known are %s", ErrPolicy, p, strings.Join(names, ", "))
	}
	return m.result(), nil
}

// regretNS is within which time a block that is evicted and computed again is regretted.
const regretNS = 60_000_000_000

// meter counts what a policy does, in the same way for all.
type meter struct {
	log     *Log
	res     Result
	seen    []bool  // computed before
	goneAt  []int64 // when a block was last evicted; 0: never
	goneAs  []kvtier.Class
	evicted [4]int64
	regrets [4]int64
}

func newMeter(l *Log, p Policy, capacity int64) *meter {
	n := len(l.Blocks)
	return &meter{
		log: l, res: Result{Policy: p, Mode: l.Mode, Load: l.Name, Seed: l.Seed, Capacity: capacity, Calls: len(l.Calls)},
		seen: make([]bool, n), goneAt: make([]int64, n), goneAs: make([]kvtier.Class, n),
	}
}

// looked counts a prompt of which the first found blocks are in memory.
func (m *meter) looked(c *Call, found int32) {
	m.res.Prompt += int64(c.In)
	m.res.Found += int64(found) * blockTokens
	m.res.Looks = append(m.res.Looks, Look{c.In, found * blockTokens})
	c.each(c.Look, func(i, b int32) bool {
		if i >= found && m.seen[b] {
			m.res.Recomputed += blockTokens
		}
		return true
	})
}

// computed notes that block b came into memory, or did not for lack of room.
func (m *meter) computed(now int64, b int32) {
	m.seen[b] = true
	if at := m.goneAt[b]; at > 0 && now-at <= regretNS {
		m.regrets[m.goneAs[b]]++
	}
	m.goneAt[b] = 0
}

func (m *meter) gone(now int64, b int32, c kvtier.Class) {
	m.evicted[c]++
	m.goneAt[b], m.goneAs[b] = now, c
}

func (m *meter) result() *Result {
	r := &m.res
	if r.Prompt > 0 {
		r.HitRate = float64(r.Found) / float64(r.Prompt)
	}
	r.Evictions, r.Regrets = map[string]int64{}, map[string]int64{}
	for c := range m.evicted {
		name := kvtier.Class(c).String()
		if m.evicted[c] > 0 {
			r.Evictions[name] = m.evicted[c]
		}
		if m.regrets[c] > 0 {
			r.Regrets[name] = m.regrets[c]
		}
	}
	return r
}

// Compare sets the shares of the gap that results close, from those of LRU, leaf-first
// LRU and Belady among them on the same load and capacity. What has no such results
// beside it, or no gap, stays without.
func Compare(rs []*Result) {
	type at struct {
		load     string
		capacity int64
	}
	find := map[at]map[Policy]*Result{}
	for _, r := range rs {
		k := at{r.Load, r.Capacity}
		if find[k] == nil {
			find[k] = map[Policy]*Result{}
		}
		if _, ok := find[k][r.Policy]; !ok {
			find[k][r.Policy] = r
		}
	}
	for _, r := range rs {
		f := find[at{r.Load, r.Capacity}]
		r.GapClosed = closed(r, f[LRU], f[Belady])
		r.GapClosedLeaf = closed(r, f[LeafLRU], f[Belady])
	}
}

// minGap is the smallest gap, in hit rate, whose share means something.
const minGap = 1e-4

func closed(r, base, best *Result) *float64 {
	if base == nil || best == nil || best.HitRate-base.HitRate < minGap {
		return nil
	}
	v := (r.HitRate - base.HitRate) / (best.HitRate - base.HitRate)
	return &v
}
