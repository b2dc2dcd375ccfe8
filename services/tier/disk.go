package tier

import (
	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
)

// inMemory are the events of a batch that tell of memory alone. A block that moved to disk
// is told of by another notice, which says that it lies nowhere else.
func inMemory(events []kvtier.Event) []kvtier.Event {
	out := events[:0:0]
	for _, e := range events {
		if e.Kind != kvtier.EventMoved && e.Kind != kvtier.EventDropped {
			out = append(out, e)
		}
	}
	return out
}

// onDisk is what a batch changed on disk, as its last word on each block: those that lie
// on disk alone, those that are in memory again, and those that left the disk.
func onDisk(events []kvtier.Event) (moved, stored, dropped []kvtier.Block) {
	type where struct{ disk, memory, told bool }
	at := map[kvtier.Key]where{}
	for _, e := range events {
		w := at[e.Key]
		switch e.Kind {
		case kvtier.EventMoved:
			w = where{disk: true, told: true}
		case kvtier.EventDropped:
			w.disk, w.told = false, true
		case kvtier.EventStored:
			w.memory = true
		case kvtier.EventEvicted:
			w.memory = false
		case kvtier.EventCleared:
			clear(at)
			continue
		}
		at[e.Key] = w
	}
	for _, e := range events {
		w := at[e.Key]
		delete(at, e.Key)
		switch {
		case !w.told:
		case !w.disk:
			dropped = append(dropped, e.Block)
		case w.memory:
			stored = append(stored, e.Block)
		default:
			moved = append(moved, e.Block)
		}
	}
	return moved, stored, dropped
}

// notifyDisk publishes what a batch changed on disk.
func (n *notifier) notifyDisk(events []kvtier.Event) {
	moved, stored, dropped := onDisk(events)
	on, in, out := extents(moved), extents(stored), make([]schemas.Extent, len(dropped))
	for i, b := range dropped {
		out[i] = schemas.Extent{Key: b.Key.String(), From: b.Index, N: 1}
	}
	for len(on)+len(in)+len(out) > 0 {
		m := &schemas.KVNotice{Header: schemas.H(), Node: n.cfg.Node, Epoch: n.epoch, Medium: schemas.MediumDisk, Peer: n.peer}
		room := extentsPerNotice
		for _, l := range []struct{ from, to *[]schemas.Extent }{{&out, &m.Evicted}, {&on, &m.Moved}, {&in, &m.Stored}} {
			k := min(len(*l.from), room)
			*l.to, *l.from, room = (*l.from)[:k], (*l.from)[k:], room-k
		}
		n.publish(m)
	}
}

// memory is the configuration of the daemon.
func (c *Config) memory() hostmem.Config {
	return hostmem.Config{Dir: c.Dir, Bytes: c.Bytes, Order: c.Order, Disk: c.Disk, DiskBytes: c.DiskBytes, Logger: c.Logger}
}
