package hostmem

import (
	"cmp"
	"slices"

	"github.com/weir-dev/weir/kvtier"
)

// Batch is a run of events of one pool in order. Seq counts batches within an
// epoch from 1. Gap means that events before this batch were dropped because
// nobody read them in time: take a Snapshot and forget what was known.
type Batch struct {
	Pool   string
	Epoch  uint64 // grows with each start of the daemon
	Seq    uint64
	Gap    bool
	Events []kvtier.Event
}

// Snapshot is everything a pool holds. It stands between batch Seq and the next.
// Parents come before their children.
type Snapshot struct {
	Pool   string
	Epoch  uint64
	Seq    uint64
	Blocks []kvtier.Block
}

// outbox collects events until the reader takes them. While the channel is full
// they pile up here, so a slow reader gets fewer, larger batches.
type outbox struct {
	pool    string
	epoch   uint64
	seq     uint64
	gap     bool
	pending []kvtier.Event
	dropped uint64
}

func (o *outbox) add(e kvtier.Event) {
	if len(o.pending) >= maxEventsQueue {
		o.dropped += uint64(len(o.pending))
		o.pending, o.gap = o.pending[:0], true
	}
	o.pending = append(o.pending, e)
}

// next is the batch that would be sent next; ok is false if there is none.
func (o *outbox) next() (Batch, bool) {
	if len(o.pending) == 0 {
		return Batch{}, false
	}
	return Batch{Pool: o.pool, Epoch: o.epoch, Seq: o.seq + 1, Gap: o.gap, Events: o.pending}, true
}

// sent forgets the batch that next returned.
func (o *outbox) sent() { o.seq, o.gap, o.pending = o.seq+1, false, nil }

// sortBlocks puts parents before children.
func sortBlocks(blocks []kvtier.Block) {
	slices.SortFunc(blocks, func(a, b kvtier.Block) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), slices.Compare(a.Key[:], b.Key[:]))
	})
}
