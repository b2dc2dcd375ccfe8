package retain

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// world is a small deterministic load with a cache of branches in front of it: each
// branch takes turns, waits, and finds what is left of its blocks. Branches lose
// their last blocks first, dead ones before idle, idle before waiting. What the
// policies know comes from said, what happens from the world.
type world struct {
	capacity int
	order    func(now float64, b *actor) (Class, float64) // the smaller goes first
	turn     func(now float64, b *actor)                  // a turn begins; b.have is what it finds
	said     func(now float64, b *actor)                  // an answer is there
	hits     []float64                                    // running totals per turn
	asked    []float64
}

// actor is one branch of the world.
type actor struct {
	id            string
	blocks, have  int
	running, user bool
	lasts         bool // it goes on after its wait
	began, used   float64
	next          float64
	turns         int
	pace          float64
	claim         claim
}

// claim is what an agent said of its branch's wait.
type claim struct {
	said, user, over bool
	hint             float64 // when it will go on, 0 for nothing said
}

type actors []*actor

func (h actors) Len() int { return len(h) }
func (h actors) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].next, h[j].next), cmp.Compare(h[i].id, h[j].id)) < 0
}
func (h actors) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *actors) Push(x any)   { *h = append(*h, x.(*actor)) }
func (h *actors) Pop() any {
	o := *h
	x := o[len(o)-1]
	*h = o[:len(o)-1]
	return x
}

// run plays turns of live branches. Tool waits are lognormal around each session's
// pace, user waits too; sessions have 25 turns on average and are replaced.
func (w *world) run(seed uint64, live, turns int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var h actors
	n := 0
	enter := func(now float64) {
		n++
		b := &actor{id: fmt.Sprint(n), blocks: 20 + rng.IntN(60), next: now, pace: 3 * math.Exp(1.2*rng.NormFloat64()), lasts: true}
		heap.Push(&h, b)
	}
	for range live {
		enter(30 * rng.Float64())
	}
	var hits, asked float64
	for done := 0; done < turns; {
		b := h[0]
		now := b.next
		if b.running { // the answer is there
			b.running, b.began, b.used = false, now, now
			wait := b.pace * math.Exp(0.5*rng.NormFloat64())
			if b.user = rng.IntN(10) == 0; b.user {
				wait = 120 * math.Exp(rng.NormFloat64())
			}
			b.lasts = rng.IntN(25) != 0
			b.next = now + wait
			w.said(now, b)
			if !b.lasts {
				b.next = math.Inf(1)
			}
			heap.Fix(&h, 0)
			if !b.lasts {
				enter(now + 10)
			}
			continue
		}
		if b.turns > 0 {
			hits += float64(b.have)
			asked += float64(b.blocks)
			w.hits, w.asked = append(w.hits, hits), append(w.asked, asked)
			done++
		}
		w.turn(now, b)
		b.running, b.began, b.used = true, now, now
		b.turns++
		b.blocks += 1 + rng.IntN(4)
		b.have = b.blocks
		b.next = now + 2 + 6*rng.Float64()
		w.evict(now, h)
		heap.Fix(&h, 0)
	}
}

func (w *world) evict(now float64, all actors) {
	over := -w.capacity
	for _, b := range all {
		over += b.have
	}
	if over <= 0 {
		return
	}
	type rank struct {
		b *actor
		c Class
		s float64
	}
	var ranks []rank
	for _, b := range all {
		if b.have > 0 {
			c, s := w.order(now, b)
			ranks = append(ranks, rank{b, c, s})
		}
	}
	slices.SortFunc(ranks, func(x, y rank) int {
		return cmp.Or(cmp.Compare(x.c, y.c), cmp.Compare(x.s, y.s), cmp.Compare(x.b.id, y.b.id))
	})
	for _, r := range ranks {
		n := min(over, r.b.have)
		r.b.have -= n
		if over -= n; over == 0 {
			return
		}
	}
}

// rate is the share of hits from turn from on.
func (w *world) rate(from int) float64 {
	last := len(w.hits) - 1
	if from == 0 {
		return w.hits[last] / w.asked[last]
	}
	return (w.hits[last] - w.hits[from-1]) / (w.asked[last] - w.asked[from-1])
}

// lruWorld is plain LRU: it hears nothing.
func lruWorld(capacity int) *world {
	return &world{
		capacity: capacity,
		order:    func(_ float64, b *actor) (Class, float64) { return ClassIdle, b.used },
		turn:     func(float64, *actor) {}, said: func(float64, *actor) {},
	}
}

// belief joins estimator, shadow and credit as the keeper does.
type belief struct {
	e      *Estimator
	c      *Credit
	s      *Shadow
	levels [3]int // turns at each level
	learnt int    // turn at which the hints were first doubted, 0 for never
	turns  int
}

func ns(t float64) int64 { return int64(t * 1e9) }

func (f *belief) wait(now float64, b *actor) *Wait {
	w := &Wait{Tenant: "t", Session: b.id, Branch: "m", Began: ns(b.began), Running: b.running, Inferred: true, User: b.user}
	if !b.running && b.claim.said && f.c.Level(ns(now), "t") == LevelHints {
		w.User, w.Inferred, w.Hint = b.claim.user, false, ns(b.claim.hint)
	}
	return w
}

// weirWorld ranks by the estimator, with credit for what say makes agents say.
func weirWorld(capacity int, say func(now float64, b *actor) claim) (*world, *belief) {
	f := &belief{e: NewEstimator(Options{}), c: NewCredit(0), s: NewShadow(capacity, 0)}
	w := &world{capacity: capacity}
	w.turn = func(now float64, b *actor) {
		level := f.c.Level(ns(now), "t")
		f.levels[level]++
		if f.turns++; level < LevelHints && f.learnt == 0 {
			f.learnt = f.turns
		}
		if b.turns > 0 {
			f.c.Resumed(ns(now), "t", b.have, b.blocks, f.s.Resident(b.id))
			f.e.Ended(ns(now), f.wait(now, b))
		}
		f.s.Touch(b.id, b.blocks, b.blocks)
		f.e.Began(ns(now), &Wait{Tenant: "t", Session: b.id, Branch: "m", Began: ns(now), Running: true})
	}
	w.said = func(now float64, b *actor) {
		b.claim = say(now, b)
		f.s.Touch(b.id, b.blocks, b.blocks)
		f.e.Began(ns(now), f.wait(now, b))
	}
	w.order = func(now float64, b *actor) (Class, float64) {
		switch f.c.Level(ns(now), "t") {
		case LevelLRU:
			return f.e.Recency(ns(now), &Wait{Began: ns(b.used)})
		case LevelHints:
			if !b.running && b.claim.said && b.claim.over {
				return 0, b.used // dead
			}
		}
		return f.e.Score(ns(now), f.wait(now, b))
	}
	return w, f
}
