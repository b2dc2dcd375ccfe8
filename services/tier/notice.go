package tier

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
)

// notifier turns the daemon's batches into KV notices, and answers who asks for all
// that is sealed.
type notifier struct {
	cfg    Config
	daemon *hostmem.Daemon
	peer   string // see schemas.KVNotice
	// epoch is one for all pools, whose own ones differ: that of the daemon's life.
	epoch uint64

	mu   sync.Mutex
	seq  uint64 // of the last notice
	list list   // of the last request for page 0
}

// list is what one receiver reads page by page.
type list struct {
	extents []schemas.Extent
	disk    []schemas.Extent
	seq     uint64
	at      time.Time
}

// page cuts one page out: what lies on disk stands behind what is in memory.
func (l *list) page(n int) (extents, disk []schemas.Extent, more bool) {
	n = min(n, len(l.extents)+len(l.disk)) // a page behind the end is empty
	cut := func(list []schemas.Extent, from int) []schemas.Extent {
		from = min(max(0, from), len(list))
		return list[from:]
	}
	extents = cut(l.extents, n*syncPage)
	extents = extents[:min(len(extents), syncPage)]
	disk = cut(l.disk, n*syncPage-len(l.extents))
	disk = disk[:min(len(disk), syncPage-len(extents))]
	return extents, disk, (n+1)*syncPage < len(l.extents)+len(l.disk)
}

func newNotifier(cfg Config, d *hostmem.Daemon) *notifier {
	return &notifier{cfg: cfg, daemon: d, epoch: d.Life()}
}

// extentsPerNotice keeps a notice well below the largest message.
const extentsPerNotice = 2048

// notify publishes the net effect of a batch. A batch behind a gap says that all was
// cleared first: the receivers then ask for the whole list. What is stored stands as
// extents that end at stops, what was evicted block by block, for any of them may be
// the end of an extent that somebody knows.
func (n *notifier) notify(b hostmem.Batch) {
	stored, evicted, cleared := kvtier.Net(inMemory(b.Events))
	in, out := extents(stored), make([]schemas.Extent, len(evicted))
	for i, e := range evicted {
		out[i] = schemas.Extent{Key: e.Key.String(), From: e.Index, N: 1}
	}
	for cleared = cleared || b.Gap; cleared || len(in)+len(out) > 0; cleared = false {
		m := &schemas.KVNotice{Header: schemas.H(), Node: n.cfg.Node, Epoch: n.epoch, Medium: schemas.MediumHost, Cleared: cleared, Peer: n.peer}
		k := min(len(out), extentsPerNotice)
		m.Evicted, out = out[:k], out[k:]
		k = min(len(in), extentsPerNotice-k)
		m.Stored, in = in[:k], in[k:]
		n.publish(m)
	}
	n.notifyDisk(b.Events)
}

// hello says that this life has begun, and where it gives blocks. Whoever knew the one
// before asks for the list.
func (n *notifier) hello() {
	n.publish(&schemas.KVNotice{Header: schemas.H(), Node: n.cfg.Node, Epoch: n.epoch, Medium: schemas.MediumHost, Peer: n.peer})
}

func (n *notifier) publish(m *schemas.KVNotice) {
	n.mu.Lock()
	n.seq++
	m.Seq = n.seq
	n.mu.Unlock()
	body, err := schemas.Encode(m)
	if err == nil {
		err = n.cfg.Conn.Publish(schemas.KVSubject(n.cfg.Cell, n.cfg.Node), body)
	}
	if err != nil {
		// Receivers see the gap in Seq and resync.
		n.cfg.Logger.Warn("KV notice not sent", "node", n.cfg.Node, "seq", m.Seq, "error", err)
	}
}

// extents are runs of blocks that end at stops, where chains fork and where they end.
func extents(blocks []kvtier.Block) []schemas.Extent {
	runs := kvtier.ExtentsCut(blocks, func(n int) bool { return schemas.NextStop(n-1) == n })
	out := make([]schemas.Extent, len(runs))
	for i, e := range runs {
		out[i] = schemas.Extent{Key: e.Key.String(), From: e.From, N: e.N}
	}
	return out
}

// syncPage is the number of extents in one reply; listKept is how long a list is kept
// for its next page; maxDiskList bounds the blocks on disk alone that are listed, of some
// 100 bytes each while the list is made.
const (
	syncPage    = 4096
	listKept    = time.Minute
	maxDiskList = 1 << 20
)

// sync answers one page of everything that is sealed.
func (n *notifier) sync(m *nats.Msg) {
	var q schemas.SyncRequest
	if err := schemas.Decode(m.Data, &q); err != nil {
		n.cfg.Logger.Warn("sync request not understood", "error", err)
		return
	}
	l, err := n.read(q.Page)
	if err != nil {
		n.cfg.Logger.Warn("sync request not answered", "error", err)
		return
	}
	rep := &schemas.SyncReply{Header: schemas.H(), Node: n.cfg.Node, Epoch: n.epoch, Seq: l.seq, Peer: n.peer}
	rep.Extents, rep.Disk, rep.More = l.page(q.Page)
	body, err := schemas.Encode(rep)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		n.cfg.Logger.Warn("sync reply not sent", "error", err)
	}
	if !rep.More {
		n.list = list{}
	}
}

// read makes the list anew for page 0. Its pages belong together. Only the goroutine
// of the subscription uses it.
func (n *notifier) read(page int) (list, error) {
	if page > 0 && !n.list.at.IsZero() && time.Since(n.list.at) < listKept {
		return n.list, nil
	}
	// The sequence is read first: a change that is not in the list then comes with a
	// later notice.
	n.mu.Lock()
	l := list{seq: n.seq, at: time.Now()}
	n.mu.Unlock()
	snaps, err := n.daemon.Snapshot()
	if err != nil {
		return l, err
	}
	resident := map[kvtier.Key]bool{}
	for _, s := range snaps {
		l.extents = append(l.extents, extents(s.Blocks)...)
		for i := range s.Blocks {
			resident[s.Blocks[i].Key] = true
		}
	}
	l.disk = extents(n.daemon.OnDisk(maxDiskList, func(k kvtier.Key) bool { return !resident[k] }))
	n.list = l
	return l, nil
}
