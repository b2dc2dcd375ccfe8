package route

import (
	"slices"
	"sort"

	"github.com/weir-dev/weir/planner/admit"
	"github.com/weir-dev/weir/schemas"
)

// need is what a waiting turn waits for. Turns of one need wait in one order, so that
// a need for which nobody has room costs nothing, however many turns have it.
type need uint8

const (
	needAlone  need = iota // an executor of its own
	needDecode             // a decode slot, also of turns that lack little of their prompt
	needS                  // prefill of a prompt of size class S; needM and needL follow
	needM
	needL
	needs
)

// Turns of the other lists wait for no room: they are looked at when what holds them
// up may have changed.
const (
	listParked = iota // a router that started does not know yet where they run, or what nodes hold
	listMisfit        // no living executor has sequences that are long enough
	lists
)

// needOf is the need of a prefill of that class.
func needOf(c schemas.SizeClass) need {
	switch c {
	case schemas.SizeS:
		return needS
	case schemas.SizeM:
		return needM
	default:
		return needL
	}
}

// pool is one model: its executors, and its turns that wait.
type pool struct {
	name  string
	xs    []*executor // in order of their names
	queue [needs]heap
	list  [lists][]*turn
	// rooms counts executors that have room for a need, takers those whose assignment
	// allows it at all.
	rooms, takers [needs]int
	tokens        [needs]int // to be computed of the turns of a queue, as it was when they joined it
	book          *admit.Book
	full          bool    // those that are held wait for memory, not for prefill
	held          heap    // turns whose sessions are not admitted
	pins          int     // turns that wait for one executor
	absorbers     int     // decode executors that may compute prompts
	fresh         *turn   // that came last, to be valued by absorb
	look          bool    // it is time for absorb to value some more
	dirty         bool    // something may be placed
	refit         bool    // executors changed, so misfits are to be looked at again
	refs          int     // executors and turns that name it
	tps           float64 // prefill speed heard last
	totals        totals
}

// poolOf is the pool of that name, made where it is not known. unref forgets it.
func (r *Router) poolOf(name string) *pool {
	if p := r.byName[name]; p != nil {
		p.refs++
		return p
	}
	p := &pool{name: name, refs: 1, book: admit.New(r.cfg.Book)}
	r.byName[name] = p
	i, _ := slices.BinarySearchFunc(r.pools, name, func(p *pool, n string) int {
		switch {
		case p.name < n:
			return -1
		case p.name > n:
			return 1
		}
		return 0
	})
	r.pools = slices.Insert(r.pools, i, p)
	return p
}

// unref forgets a pool that nobody names, when there are more than a load can tell of:
// until then its totals stay.
func (r *Router) unref(p *pool) {
	if p.refs--; p.refs > 0 || len(r.pools) <= schemas.MaxPools {
		return
	}
	delete(r.byName, p.name)
	r.pools = slices.DeleteFunc(r.pools, func(o *pool) bool { return o == p })
}

// join makes x an executor of a pool.
func (r *Router) join(x *executor, name string) {
	if x.in != nil && x.in.name == name {
		return
	}
	r.leave(x)
	x.in = r.poolOf(name)
	i := sort.Search(len(x.in.xs), func(i int) bool { return x.in.xs[i].id >= x.id })
	x.in.xs = slices.Insert(x.in.xs, i, x)
}

func (r *Router) leave(x *executor) {
	p := x.in
	if p == nil {
		return
	}
	r.unpinAll(r.now, x)
	x.in.count(x, can{}, can{})
	p.xs = slices.DeleteFunc(p.xs, func(o *executor) bool { return o == x })
	x.in = nil
	r.unref(p)
}

// can says for each need whether an executor has room, or takes it at all.
type can [needs]bool

// count replaces what x adds to the pool's counts.
func (p *pool) count(x *executor, room, takes can) {
	for n := range needs {
		if room[n] && !x.room[n] {
			p.rooms[n]++
			p.dirty = true
		} else if !room[n] && x.room[n] {
			p.rooms[n]--
		}
		if takes[n] != x.takes[n] {
			p.dirty = true
			if takes[n] {
				p.takers[n]++
			} else {
				p.takers[n]--
			}
		}
	}
	x.room, x.takes = room, takes
	if a := x.absorbs() && x.in == p && takes[needDecode]; a != x.absorbing {
		x.absorbing = a
		if a {
			p.absorbers++
		} else {
			p.absorbers--
		}
	}
}

// update sets what an executor adds to its pool's counts. It is called after every
// change of what it may take or holds.
func (r *Router) update(x *executor) {
	if x.in == nil {
		return
	}
	room, takes := r.able(x)
	x.in.count(x, room, takes)
	if x.empty() && x.in.queue[needAlone].first() != nil {
		x.in.dirty = true
	}
}

// able computes what update keeps.
func (r *Router) able(x *executor) (room, takes can) {
	if !x.alive {
		return room, takes
	}
	open, prefill := x.open(), r.prefillRoom(x)
	a := schemas.Assignment{Role: x.role, Classes: x.classes}
	for n, size := range classSizes {
		takes[needS+need(n)] = a.Allows(schemas.StagePrefill, size)
		room[needS+need(n)] = open && prefill && takes[needS+need(n)]
	}
	takes[needDecode] = x.role.Takes(schemas.StageDecode)
	room[needDecode] = open && r.decodeRoom(x)
	takes[needAlone] = takes[needDecode]
	// It is empty, or can be kept free until it is.
	room[needAlone] = open && takes[needAlone] && (x.empty() || x.reserved == nil)
	return room, takes
}

// classSizes are prompts of the classes S, M and L, one of each.
var classSizes = [...]int{1, schemas.SizeSMax + 1, schemas.SizeMMax + 1}

// wait puts a turn among the waiting.
func (r *Router) wait(now schemas.Time, t *turn) {
	if t.state == stateWaiting && (t.queue != nil || t.listed || t.held || t.pin != nil) {
		return
	}
	t.state = stateWaiting
	r.waiting++
	r.enqueue(now, t)
}

// enqueue puts a waiting turn where its need says.
func (r *Router) enqueue(now schemas.Time, t *turn) {
	if !r.settled(now) && (t.old || r.reading(now, t)) {
		r.list(t, listParked)
		return
	}
	n := r.need(t)
	t.in.push(t, n)
	if n >= needS {
		t.in.fresh = t
	}
	t.in.dirty = true
}

// push puts a turn in the queue of a need, pop takes it out.
func (p *pool) push(t *turn, n need) {
	t.queue, t.queued = &p.queue[n], t.expect
	t.queue.push(t)
	t.waits = n
	p.tokens[n] += t.queued
}

func (p *pool) pop(t *turn) {
	t.queue.remove(t)
	t.queue = nil
	p.tokens[t.waits] -= t.queued
}

// list puts a turn on a list of its pool.
func (r *Router) list(t *turn, l int) {
	t.listed = true
	t.in.list[l] = append(t.in.list[l], t)
}

// need is what a turn waits for.
func (r *Router) need(t *turn) need {
	switch {
	case t.alone:
		return needAlone
	case t.stage == schemas.StageDecode || t.local:
		return needDecode
	case !t.indirect && r.small((t.expect-1)/blockTokens):
		return needDecode
	}
	return t.class
}

// unwait takes a turn from among the waiting.
func (r *Router) unwait(t *turn) {
	if t.pin != nil {
		r.unpin(t)
	} else if t.held {
		t.held = false
		t.in.held.remove(t)
	} else if t.queue != nil {
		t.in.pop(t)
	} else if t.listed {
		t.listed = false
		for l := range t.in.list {
			t.in.list[l] = slices.DeleteFunc(t.in.list[l], func(o *turn) bool { return o == t })
		}
	} else {
		return
	}
	r.waiting--
}

// relist queues the turns of a list again.
func (r *Router) relist(now schemas.Time, p *pool, l int) {
	ts := p.list[l]
	p.list[l] = nil
	for _, t := range ts {
		t.listed = false
		r.enqueue(now, t)
	}
}
