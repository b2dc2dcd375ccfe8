package baseline

import (
	"math/rand/v2"

	"github.com/weir-dev/weir/planner/route"
)

// Choose is the dynamo-like router (as of 2a6da14c) behind weir's own: it says which
// executor a turn goes to, and weir's router does the rest.
//
// The original binds a request to a worker when it arrives and queues it there. Weir's
// keeps turns until an executor has room, so this one remembers which executor it chose
// for a turn that waits, counts its tokens as that executor's backlog, and stays with
// the choice. Where that executor is gone it chooses anew, kinder than the original,
// which fails the request.
type Choose struct {
	prefill, decode Cost
	rng             *rand.Rand
	bound           map[string]binding
	order           []string       // jobs in bound, oldest first; some are gone
	backlog         map[string]int // tokens of bound jobs that are not placed, by executor
}

type binding struct {
	executor string
	tokens   int
}

// maxBound bounds the turns that wait with a choice. The oldest are forgotten, which
// are those that ended otherwise: what waits is looked at again and again.
const maxBound = 1 << 16

// NewChoose makes a router's chooser with the defaults. Equal seeds choose equally.
func NewChoose(seed uint64) *Choose {
	return &Choose{
		prefill: DefaultCost(), decode: DecodeCost(), rng: rand.New(rand.NewPCG(seed, 0x64796e616d6f)),
		bound: map[string]binding{}, backlog: map[string]int{},
	}
}

var _ route.Chooser = (*Choose)(nil)

// Prefill is the cheapest executor for the prefill leg, or the one that the turn waits
// for already.
func (c *Choose) Prefill(t route.Need, xs []route.Candidate) int {
	b, waits := c.bound[t.Job]
	if waits {
		for i := range xs {
			if xs[i].ID == b.executor {
				if xs[i].Room {
					c.unbind(t.Job)
				}
				return i
			}
		}
		c.unbind(t.Job)
	}
	i := c.cheapest(xs, t.Tokens, c.prefill, true)
	if i >= 0 && !xs[i].Room {
		c.bind(t, &xs[i])
	}
	return i
}

// Decode is the executor with the least load among those with a free slot.
func (c *Choose) Decode(t route.Need, xs []route.Candidate) int {
	return c.cheapest(xs, t.Tokens, c.decode, false)
}

func (c *Choose) cheapest(xs []route.Candidate, isl int, cost Cost, full bool) int {
	least := 0
	for i := range xs {
		if n := xs[i].PrefillTokens + c.backlog[xs[i].ID]; i == 0 || n < least {
			least = n
		}
	}
	r := reservoir{pick: c.rng.IntN, at: -1}
	for i := range xs {
		x := &xs[i]
		if !full && !x.Room {
			continue
		}
		r.see(i, cost.Of(isl, least, Load{
			PrefillTokens: x.PrefillTokens + c.backlog[x.ID], Device: float64(x.Device), Host: float64(x.Host), Disk: float64(x.Disk),
			ActiveBlocks: float64(x.DecodeBlocks), Requests: x.Requests,
		}))
	}
	return r.at
}

func (c *Choose) bind(t route.Need, x *route.Candidate) {
	for len(c.bound) >= maxBound && len(c.order) > 0 {
		c.unbind(c.order[0])
		c.order = c.order[1:]
	}
	if len(c.order) >= 2*maxBound { // most of them are gone
		kept := c.order[:0]
		for _, job := range c.order {
			if _, ok := c.bound[job]; ok {
				kept = append(kept, job)
			}
		}
		c.order = kept
	}
	tokens := max(0, t.Tokens-(x.Device+x.Host+x.Disk)*c.prefill.BlockTokens)
	c.bound[t.Job] = binding{x.ID, tokens}
	c.order = append(c.order, t.Job)
	c.backlog[x.ID] += tokens
}

func (c *Choose) unbind(job string) {
	b, ok := c.bound[job]
	if !ok {
		return
	}
	delete(c.bound, job)
	if c.backlog[b.executor] -= b.tokens; c.backlog[b.executor] <= 0 {
		delete(c.backlog, b.executor)
	}
}
