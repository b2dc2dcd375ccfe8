package retain

import (
	"container/list"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/schemas"
)

// The policies of a Keeper.
const (
	PolicyWeir = "weir" // by what branches still need
	PolicyLRU  = "lru"  // leaf-first by last use: what branches say is not heard
)

// Config of a Keeper. The zero value is sensible. Times are nanoseconds.
type Config struct {
	Policy string // PolicyWeir
	// TenantShare is the share of the capacity that the waiting branches of one tenant
	// may pin when there is more than one tenant; the rest of them is idle. 0.5.
	TenantShare float64
	// Branches bounds the branches that are remembered: those that ended go first, then
	// those that were not heard of longest. 65,536, some 600 bytes each.
	Branches int
	// Regrets bounds the evicted blocks that are remembered for a minute. 65,536, some
	// 100 bytes each.
	Regrets int
	// RegretNS is within which time a block that is evicted and computed again is
	// regretted. One minute.
	RegretNS int64
	// EveryNS is how often each branch is ranked anew. One second.
	EveryNS int64
	// FreshNS protects blocks that no branch is known to need for that long after
	// their last use: the turn that computes them says where its context ends when it
	// is done. 10 s; negative for none.
	FreshNS   int64
	Estimator Options
	Tenants   int // tenants whose hints are judged; 0 as in NewCredit
}

func (c *Config) fill() {
	if c.Policy == "" {
		c.Policy = PolicyWeir
	}
	if !(c.TenantShare > 0 && c.TenantShare <= 1) {
		c.TenantShare = 0.5
	}
	set(&c.Branches, 65536)
	set(&c.Regrets, 65536)
	set(&c.RegretNS, 60e9)
	set(&c.EveryNS, 1e9)
	set(&c.FreshNS, 10e9)
}

func set[T int | int64](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

// Keeper keeps the slot tables of one node in the order of what branches need: it
// hears of branches, ranks them, and counts what that brought. It is pure; the
// caller serialises calls and tells the time in Unix ns.
type Keeper struct {
	cfg    Config
	est    *Estimator
	credit *Credit
	shadow *Shadow
	pools  []pool
	below  Follower // nil for none
	queue  int64    // predicted wait of a turn, ns

	branches map[string]*branch
	byID     map[kvtier.BranchID]*branch
	past     map[kvtier.BranchID]*branch // by branch.past
	ring     []*branch                   // in which they are ranked
	at       int                         // who is ranked next
	due      int64                       // when
	surveyed int64                       // when blocks were counted by class last
	live     list.List                   // oldest change first
	over     list.List                   // those that ended, likewise
	tenants  map[string]*tenant
	lastID   kvtier.BranchID
	capacity int // slots of all pools

	gone    regrets
	counts  [classes]Count
	dropped uint64
}

// pool is one table.
type pool struct {
	slots *kvtier.Slots // nil: the pool is gone
	block int64
}

// tenant is what is known of one.
type tenant struct {
	name     string
	branches int
}

// branch is one branch as the keeper knows it.
type branch struct {
	id     kvtier.BranchID
	past   kvtier.BranchID // the number before, which blocks remember; 0 for none
	key    string
	tenant *tenant
	state  schemas.BranchState
	why    string
	at     int64 // of its last change
	used   int64 // began its last turn or ended it
	wait   Wait
	tail   kvtier.Key
	blocks int                 // of its context
	lost   loss                // what became of an earlier context
	said   schemas.BranchState // what its agent said of this wait last
	shown  schemas.BranchState // what its answer showed
	answer int64               // when that was
	keep   int                 // leading blocks that are needed again; 0 for all
	pool   int                 // where its blocks are, none when that is not known
	held   bool                // the tables know it
	ghost  bool                // a context that was replaced and that plain LRU would not know of
	own    int                 // blocks of its own when it was last used
	class  kvtier.Class
	score  float64 // of the estimator: the higher, the longer it is kept
	over   bool    // its tenant's share is taken by better ones: it is idle
	pos    int     // in the ring
	el     *list.Element
}

// loss is when and why blocks of a branch were given up.
type loss struct {
	at  int64
	why string
}

const none = -1

// NewKeeper returns a keeper without pools.
func NewKeeper(cfg Config) *Keeper {
	cfg.fill()
	return &Keeper{
		cfg: cfg, est: NewEstimator(cfg.Estimator), credit: NewCredit(cfg.Tenants), shadow: NewShadow(0, cfg.Branches),
		branches: map[string]*branch{}, byID: map[kvtier.BranchID]*branch{}, past: map[kvtier.BranchID]*branch{}, tenants: map[string]*tenant{},
		gone: newRegrets(cfg.Regrets),
	}
}

// Policy returns the policy in force.
func (k *Keeper) Policy() string { return k.cfg.Policy }

// Add makes s the table of pool number n, with blocks of blockBytes. All pools share
// one order of branches.
func (k *Keeper) Add(n int, s *kvtier.Slots, blockBytes int64) {
	for len(k.pools) <= n {
		k.pools = append(k.pools, pool{})
	}
	k.pools[n] = pool{s, blockBytes}
	if k.cfg.Policy == PolicyWeir && k.cfg.FreshNS > 0 {
		s.Fresh(k.cfg.FreshNS)
	}
	k.resize()
}

// Remove forgets pool number n. Its number may be given out again.
func (k *Keeper) Remove(n int) {
	if n >= len(k.pools) {
		return
	}
	k.pools[n] = pool{}
	for _, b := range k.ring {
		if b.pool == n {
			b.pool = none
		}
	}
	k.resize()
}

func (k *Keeper) resize() {
	k.capacity = 0
	for _, p := range k.pools {
		if p.slots != nil {
			k.capacity += p.slots.Counts().Total
		}
	}
	k.shadow.Resize(k.capacity)
}

// Branch takes what a BRANCH message says. A message that says again what is known
// has no effect besides making sure that the tables know it too.
func (k *Keeper) Branch(now int64, c *schemas.BranchChange) {
	if k.cfg.Policy != PolicyWeir || c.Check() != nil {
		return
	}
	b := k.branch(c)
	again := b.at == c.AtNS && b.state == c.State && b.why == c.Why
	k.hear(now, b, c)
	level := k.credit.Level(now, b.tenant.name)
	if level < LevelHints && !c.Inferred && c.State != schemas.BranchRunning && b.state != "" {
		// It is not believed. What it waits for, and whether it comes back, is what it
		// was before.
		k.move(now, b, c, level)
		k.rank(now, b)
		return
	}
	last := b.state
	if c.State == schemas.BranchSuperseded || c.State == schemas.BranchEnded {
		b.lost = loss{c.AtNS, string(c.State) + named(": ", c.Why)}
	}
	b.state, b.why, b.at = c.State, c.Why, c.AtNS
	switch c.State {
	case schemas.BranchRunning:
		k.runs(now, b, c, last, level, again)
	case schemas.BranchToolWaiting, schemas.BranchUserWaiting:
		k.waits(now, b, c, last, level, again)
	case schemas.BranchSuperseded:
		k.replaced(b, level)
	case schemas.BranchEnded:
		k.ends(now, b, c, last, level)
	}
	k.rank(now, b)
}

// branch returns the entry of the branch that a message is about.
func (k *Keeper) branch(c *schemas.BranchChange) *branch {
	key := c.Tenant + "/" + c.Session + "/" + c.Branch
	b := k.branches[key]
	if b == nil {
		b = k.enter(key, c.Tenant)
		b.wait = Wait{Tenant: c.Tenant, Session: c.Session, Branch: c.Branch}
	}
	k.live.Remove(b.el)
	k.over.Remove(b.el)
	if c.State == schemas.BranchEnded {
		b.el = k.over.PushBack(b)
	} else {
		b.el = k.live.PushBack(b)
	}
	return b
}

// enter makes an entry, and room for it.
func (k *Keeper) enter(key, name string) *branch {
	for len(k.ring) >= max(1, k.cfg.Branches) {
		e := k.over.Front()
		if e == nil {
			e = k.live.Front()
		}
		k.forget(e.Value.(*branch))
	}
	t := k.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		k.tenants[name] = t
	}
	t.branches++
	b := &branch{key: key, tenant: t, pool: none, pos: len(k.ring)}
	k.number(b)
	b.el = k.live.PushBack(b)
	k.branches[key] = b
	k.ring = append(k.ring, b)
	return b
}

func named(before, s string) string {
	if s == "" {
		return ""
	}
	return before + s
}

// number gives a branch a number that no table remembers but for a wrap.
func (k *Keeper) number(b *branch) {
	for k.lastID++; k.lastID == 0 || k.byID[k.lastID] != nil || k.past[k.lastID] != nil; k.lastID++ {
	}
	b.id = k.lastID
	k.byID[b.id] = b
}

// forget drops the entry of a branch; its blocks are idle.
func (k *Keeper) forget(b *branch) {
	k.drop(b, false)
	k.live.Remove(b.el)
	k.over.Remove(b.el)
	delete(k.branches, b.key)
	delete(k.byID, b.id)
	delete(k.past, b.past)
	last := k.ring[len(k.ring)-1]
	k.ring[b.pos], last.pos = last, b.pos
	k.ring = k.ring[:len(k.ring)-1]
	if b.tenant.branches--; b.tenant.branches == 0 {
		delete(k.tenants, b.tenant.name)
	}
	k.dropped++
}

// runs: a turn of the branch begins.
func (k *Keeper) runs(now int64, b *branch, c *schemas.BranchChange, last schemas.BranchState, level Level, again bool) {
	if again {
		k.move(now, b, c, level)
		return
	}
	resumed := last == schemas.BranchToolWaiting || last == schemas.BranchUserWaiting
	if resumed || last == schemas.BranchSuperseded {
		k.est.Ended(now, &b.wait)
	}
	if resumed {
		k.resumed(now, b, c)
	}
	k.move(now, b, c, level)
	b.wait.Running, b.wait.User, b.wait.Tool, b.wait.Hint = true, false, "", 0
	b.wait.Began, b.wait.Inferred, b.used = now, c.Inferred, now
	b.wait.Turns++
	k.fill(b)
	k.est.Began(now, &b.wait)
}

// resumed counts what a branch that goes on finds.
func (k *Keeper) resumed(now int64, b *branch, c *schemas.BranchChange) {
	resident, _ := k.find(b)
	want := max(0, c.Tail.From+c.Tail.N)
	have := min(resident, want)
	k.counts[b.class].Hits += uint64(have)
	if b.keep == 0 && want < b.blocks {
		return // it does not go on with what it had
	}
	shared := max(0, b.blocks-b.own)
	k.credit.Resumed(now, b.tenant.name, max(0, have-shared), min(b.own, max(0, want-shared)), k.shadow.Resident(b.key))
}

// waits: the branch was answered and waits.
func (k *Keeper) waits(now int64, b *branch, c *schemas.BranchChange, last schemas.BranchState, level Level, again bool) {
	k.move(now, b, c, level)
	if again && last == c.State && b.wait.Tool == c.Tool && b.wait.Hint == c.ResumeNS {
		return
	}
	if c.QueueNS > 0 {
		k.queued(c.QueueNS)
	}
	w := &b.wait
	if w.Running || last != schemas.BranchToolWaiting && last != schemas.BranchUserWaiting {
		w.Began, b.used = now, now
		if c.AtNS > 0 && c.AtNS < now {
			w.Began, b.used = c.AtNS, c.AtNS // learned late: after a restart, for instance
		}
	}
	w.Running, w.User, w.Tool = false, c.State == schemas.BranchUserWaiting, c.Tool
	w.Hint, w.Inferred = c.ResumeNS, c.Inferred
	k.fill(b)
	k.est.Began(now, w)
	b.own = b.blocks // w.Own lacks what was evicted during the turn
	k.shadow.Touch(b.key, b.blocks, b.own)
}

// replaced: the context of the branch is of no use from here on.
func (k *Keeper) replaced(b *branch, level Level) {
	if level == LevelLRU {
		k.haunt(b)
		return
	}
	k.drop(b, true)
}

// ends: the branch is no more. One that only seems so is idle.
func (k *Keeper) ends(now int64, b *branch, c *schemas.BranchChange, last schemas.BranchState, level Level) {
	if last != schemas.BranchEnded && last != "" {
		k.est.Gone(now, &b.wait)
	}
	if level == LevelLRU {
		return // plain LRU does not know
	}
	k.drop(b, !c.Inferred)
}
