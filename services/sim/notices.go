package sim

import (
	"github.com/weir-dev/weir/schemas"
)

// notices tell the router what a node stores and evicts, as a live tier node does: in
// batches, numbered, ends of extents only.
type notices struct {
	n      *node
	seq    uint64
	stores []schemas.Extent
	evicts []schemas.Extent
	clear  bool
	armed  bool
}

// noticeEvery is how long a live node collects changes before it tells them.
const noticeEvery = schemas.Time(20e6)

func (t *notices) stored(now schemas.Time, h *held, from, to int) {
	es := h.chain.cut(from, to, nil)
	t.stores = append(t.stores, es...)
	for _, e := range es {
		h.ends = append(h.ends, e.From+e.N)
	}
	t.arm(now)
}

// evicted names every end behind the blocks that are left.
func (t *notices) evicted(now schemas.Time, h *held, left int) {
	kept := h.ends[:0]
	for _, end := range h.ends {
		if end <= left {
			kept = append(kept, end)
			continue
		}
		t.evicts = append(t.evicts, schemas.Extent{Key: h.chain.key(end), From: left, N: end - left})
	}
	h.ends = kept
	t.arm(now)
}

func (t *notices) cleared(now schemas.Time) {
	t.stores, t.evicts, t.clear = nil, nil, true
	t.arm(now)
}

func (t *notices) arm(now schemas.Time) {
	if t.armed {
		return
	}
	t.armed = true
	w := t.n.m.w
	w.sim.Timer(now+noticeEvery, func() {
		t.armed = false
		t.seq++
		m := &schemas.KVNotice{
			Header: schemas.H(), Node: t.n.id, Epoch: 1, Seq: t.seq, Medium: schemas.MediumHost,
			Stored: t.stores, Evicted: t.evicts, Cleared: t.clear,
		}
		t.stores, t.evicts, t.clear = nil, nil, false
		if _, err := w.sim.PublishMsg(&schemas.Msg{Kind: schemas.KindKV, Subject: schemas.KVSubject(cell, t.n.id), KV: m}); err != nil {
			w.check.broken(11, "a notice of "+t.n.id+" was refused: "+err.Error())
		}
	})
}

// list answers the router's question for all that the node holds.
func (t *notices) list() *schemas.SyncReply {
	rep := &schemas.SyncReply{Header: schemas.H(), Node: t.n.id, Epoch: 1, Seq: t.seq}
	for _, l := range []*list{&t.n.lru, &t.n.dead} {
		for h := l.first; h != nil; h = h.el.next {
			for _, end := range h.ends {
				rep.Extents = append(rep.Extents, schemas.Extent{Key: h.chain.key(end), From: 0, N: end})
			}
		}
	}
	return rep
}
