package tierbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-dev/weir/kvtier"
)

const branchLen = 64 // blocks of a branch's context

// decisions measures how long it takes to choose and evict a block in a full table
// whose blocks belong to branches that wait, and some of which are dead.
func decisions(ctx context.Context, opt Options, factor int) ([]Figure, error) {
	n, evictions := 100_000*factor, 20_000
	if opt.Short {
		n, evictions = 10_000, 2000
	}
	t := newTable(n)
	var tries []float64
	for range 3 {
		us, err := t.evict(ctx, evictions)
		if err != nil {
			return nil, err
		}
		slices.Sort(us)
		tries = append(tries, us[len(us)*99/100])
	}
	return []Figure{{
		Name: "evict.decision_us_p99", Value: median(tries), Unit: "us", Bar: 20, Low: true,
		Note: fmt.Sprintf("victim and evict, %d blocks of %d branches; p99 of three runs %.2f", n, n/branchLen, tries),
	}}, nil
}

// table is a slot table under agents: each branch holds a context, waits, is used
// again, or is replaced.
type table struct {
	slots *kvtier.Slots
	use   []int64 // by slot: readers touch them in shared memory
	rng   *rand.Rand
	now   int64
	last  kvtier.BranchID
	live  []kvtier.BranchID
	tail  kvtier.Block // of the context that is being computed
	keys  int
}

func (t *table) Leased(kvtier.SlotID) bool        { return false }
func (t *table) LastUse(id kvtier.SlotID) int64   { return t.use[id] }
func (t *table) touch(id kvtier.SlotID, at int64) { t.use[id] = at }

func newTable(n int) *table {
	t := &table{slots: kvtier.NewSlots(n), use: make([]int64, n), rng: rand.New(rand.NewPCG(2, 2))}
	for t.slots.Counts().Free > 0 {
		t.compute()
	}
	return t
}

// compute seals the next block of the newest context, and ends the context now and then.
func (t *table) compute() {
	t.now++
	r := t.slots.Reserve(0, 1, nil)[0]
	b := kvtier.Block{Key: keyOf(t.keys), Parent: t.tail.Key, Index: t.tail.Index + 1}
	if t.tail.Key.IsZero() {
		b.Parent, b.Index = keyOf(-1-t.keys), 0
	}
	t.keys++
	if _, _, err := t.slots.Seal(0, r, b, t.now); err != nil {
		panic(err) // keys are new and indexes follow: cannot happen
	}
	t.touch(r.Slot, t.now)
	t.tail = b
	if b.Index == branchLen-1 {
		t.settle(b.Key)
	}
}

// settle gives a full context to a branch that then waits, and ends another one.
func (t *table) settle(tail kvtier.Key) {
	t.last++
	t.slots.Hold(t.last, tail)
	t.slots.Rank(t.last, kvtier.ClassWaiting, t.rng.Float64())
	t.live = append(t.live, t.last)
	t.tail = kvtier.Block{}
	if len(t.live) < 8 {
		return
	}
	i := t.rng.IntN(len(t.live))
	switch b := t.live[i]; t.rng.IntN(4) {
	case 0:
		t.slots.Drop(b, t.rng.IntN(2) == 0)
		t.live[i] = t.live[len(t.live)-1]
		t.live = t.live[:len(t.live)-1]
	case 1:
		t.slots.Rank(b, kvtier.ClassRunning, t.rng.Float64())
	default:
		t.slots.Rank(b, kvtier.ClassWaiting, t.rng.Float64())
	}
}

// evict makes room n times and returns how long each took, in microseconds.
func (t *table) evict(ctx context.Context, n int) ([]float64, error) {
	us := make([]float64, 0, n)
	for range n {
		for range 4 { // readers go on
			t.touch(kvtier.SlotID(t.rng.IntN(len(t.use))), t.now)
		}
		begin := time.Now()
		id, ok := t.slots.Victim(t, t.now)
		if !ok {
			return nil, fmt.Errorf("tierbench: nothing to evict in a table of %d", len(t.use))
		}
		_, err := t.slots.Evict(id)
		us = append(us, float64(time.Since(begin).Nanoseconds())/1e3)
		if err != nil {
			return nil, err
		}
		t.compute()
	}
	return us, ctx.Err()
}
