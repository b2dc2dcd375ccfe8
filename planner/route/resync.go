package route

import "github.com/weir-dev/weir/schemas"

// resync is the state of asking a node for all that it holds: once when it is first
// heard of, and once per gap in its notices.
//
//	want --ask page 0--> op --page, more--> op --last page--> idle
//	  ^                   |
//	  +--- back-off <-----+ no answer, or an answer from before the gap
type resync struct {
	want  bool
	op    uint64 // the question under way; 0 for none
	page  int
	epoch uint64 // of the list, and the notice behind which it was made
	seq   uint64
	upTo  uint64 // the list that is wanted holds what this notice said
	// gone are blocks that were evicted since the list was asked for, and by which
	// notice: an older list still has them.
	gone  map[endKey]uint64
	tries int          // in a row that failed
	at    schemas.Time // not before
}

// maxSyncs bounds the nodes that are asked at one time, maxSyncPages the pages of
// one list: 16 million extents.
const (
	maxSyncs     = 4
	maxSyncPages = 4096
	maxGone      = 1 << 16 // of one list; with more, it is asked for again
)

// notice applies what a node says of itself.
func (r *Router) notice(m *schemas.KVNotice) {
	n := r.dir.node(m.Node)
	if n == nil || m.Epoch < n.epoch || m.Epoch == n.epoch && m.Seq <= n.seq {
		return // of a life that is over, a repetition, or part of a list that was read
	}
	// Nothing is missing before the first notice of a node whose list is asked for
	// anyway.
	if gap := m.Epoch != n.epoch || m.Seq != n.seq+1; gap && n.epoch != 0 || m.Cleared {
		r.counts.Gaps++
		r.dir.due = true
		n.sync.want, n.sync.upTo, n.sync.tries, n.sync.at = true, m.Seq-1, 0, 0
		if m.Cleared {
			n.sync.upTo = m.Seq
		}
	}
	if m.Epoch != n.epoch {
		n.sync.gone = nil
	}
	n.epoch, n.seq, n.peer = m.Epoch, m.Seq, m.Peer
	if m.Cleared {
		r.dir.clear(n)
	}
	medium := bitOf(m.Medium)
	for _, e := range m.Stored {
		r.dir.add(n, e, medium, false)
	}
	for _, e := range m.Moved {
		r.dir.add(n, e, medium, true)
	}
	for _, e := range m.Evicted {
		r.dir.drop(n, e.Key, medium)
		n.sync.evicted(e.Key, m.Seq)
	}
}

// evicted notes what a list that is on its way may still have.
func (s *resync) evicted(key string, seq uint64) {
	k, ok := parseEnd(key)
	if !ok || s.op == 0 {
		return
	}
	if len(s.gone) >= maxGone {
		s.gone, s.want, s.upTo = nil, true, seq
	}
	if s.gone == nil {
		s.gone = map[endKey]uint64{}
	}
	s.gone[k] = seq
}

// stale reports whether a list's extent was evicted behind it.
func (s *resync) stale(e *schemas.Extent) bool {
	if len(s.gone) == 0 {
		return false
	}
	k, ok := parseEnd(e.Key)
	return ok && s.gone[k] > s.seq
}

// syncs asks the nodes that are due.
func (r *Router) syncs(now schemas.Time, out []schemas.Msg) []schemas.Msg {
	if r.busGone {
		return out
	}
	busy := 0
	for _, n := range r.dir.list {
		if n.sync.op != 0 {
			busy++
		}
	}
	for _, n := range r.dir.list {
		s := &n.sync
		if !s.want || s.op != 0 || now < s.at || busy >= maxSyncs {
			continue
		}
		busy++
		s.want, s.page = false, 0
		n.life++ // what comes from here on belongs to the new list
		r.counts.Syncs++
		out = r.ask(n, out)
	}
	return out
}

func (r *Router) ask(n *tierNode, out []schemas.Msg) []schemas.Msg {
	r.opID++
	n.sync.op = r.opID
	return append(out, schemas.Msg{Kind: schemas.KindOp, Op: &schemas.Op{ID: r.opID, Sync: &schemas.SyncOp{Node: n.id, Page: n.sync.page}}})
}

// synced takes one page of a node's list.
func (r *Router) synced(now schemas.Time, d *schemas.OpDone, out []schemas.Msg) []schemas.Msg {
	var n *tierNode
	for _, x := range r.dir.list {
		if x.sync.op == d.ID {
			n = x
		}
	}
	if n == nil || d.ID == 0 {
		return out
	}
	s, rep := &n.sync, d.Sync
	s.op, r.dir.due = 0, true
	switch {
	case d.Err != "" || rep == nil || rep.Epoch < n.epoch || s.page > 0 && rep.Epoch != s.epoch:
		r.syncFailed(now, n)
		return out
	case s.page == 0:
		s.epoch, s.seq = rep.Epoch, rep.Seq
		if rep.Epoch > n.epoch || rep.Seq >= n.seq {
			// No notice is behind the list, so all that notices said stands in it.
			s.gone = nil
			n.epoch, n.seq = rep.Epoch, rep.Seq
			n.life++
			if s.upTo <= s.seq {
				s.want = false // it was made behind the gap that showed meanwhile
			}
		}
		n.peer = rep.Peer
	}
	for _, l := range [...]struct {
		extents []schemas.Extent
		medium  uint8
	}{{rep.Extents, onHost}, {rep.Disk, onDisk}} {
		for i := range l.extents {
			if !s.stale(&l.extents[i]) {
				r.dir.add(n, l.extents[i], l.medium, false)
			}
		}
	}
	if s.page++; rep.More && s.page < maxSyncPages {
		return r.ask(n, out)
	}
	if !n.known {
		r.dir.unknown--
	}
	n.valid, n.known = n.life, true
	r.unpark(now)
	s.gone, s.tries = nil, 0
	return out
}

// syncFailed asks again later: what the node held is kept until then, as the best
// that is known.
func (r *Router) syncFailed(now schemas.Time, n *tierNode) {
	r.counts.SyncsFailed++
	s := &n.sync
	s.gone = nil
	wait := r.cfg.SyncBackoffNS << min(s.tries, 16)
	s.tries++
	s.want, s.at = true, now+schemas.Time(min(wait, r.cfg.SyncBackoffMaxNS))
}
