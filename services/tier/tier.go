// Package tier is the process that owns a host's shared KV memory: it runs the
// allocator (package hostmem) and tells the cell what is stored and evicted.
package tier

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
)

// Config of a tier process.
type Config struct {
	Conn    *nats.Conn
	Cell    string
	Node    string
	Dir     string // folder of the shared memory
	Bytes   int64
	Logger  *slog.Logger
	Version string // of this build, for the list of services
	// Ready is called once the memory can be used.
	Ready func(*hostmem.Daemon)
}

// Run serves the memory until ctx ends. The memory itself stays: executors go on
// reading it while no daemon runs, and the next one takes it over.
func Run(ctx context.Context, cfg Config) error {
	d, err := hostmem.NewDaemon(hostmem.Config{Dir: cfg.Dir, Bytes: cfg.Bytes})
	if err != nil {
		return err
	}
	n := &notifier{cfg: cfg, daemon: d, seq: map[uint64]uint64{}}
	sub, err := cfg.Conn.Subscribe(schemas.SyncSubject(cfg.Node), n.sync)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection closes next
	svc, err := answer(cfg, d)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	defer func() { _ = svc.Stop() }()
	if cfg.Ready != nil {
		cfg.Ready(d)
	}
	cfg.Logger.Info("KV memory is served", "node", cfg.Node, "dir", cfg.Dir, "bytes", cfg.Bytes)
	for {
		select {
		case <-ctx.Done():
			return d.Close()
		case b := <-d.Events():
			n.notify(b)
		}
	}
}

// notifier turns the daemon's batches into KV notices.
type notifier struct {
	cfg    Config
	daemon *hostmem.Daemon

	mu  sync.Mutex
	seq map[uint64]uint64 // last notice, by epoch
}

// extentsPerNotice keeps a notice well below the largest message.
const extentsPerNotice = 2048

// notify publishes a batch. A batch behind a gap says that all was cleared first:
// the receivers then ask for the whole list.
func (n *notifier) notify(b hostmem.Batch) {
	out := &schemas.KVNotice{Header: schemas.H(), Node: n.cfg.Node, Epoch: b.Epoch, Medium: schemas.MediumHost, Cleared: b.Gap}
	for _, e := range b.Events {
		switch e.Kind {
		case kvtier.EventStored:
			out.Stored = extend(out.Stored, e.Block)
		case kvtier.EventEvicted:
			out.Evicted = append(out.Evicted, single(e.Block))
		case kvtier.EventCleared:
			out.Cleared = true
		}
		if len(out.Stored)+len(out.Evicted) >= extentsPerNotice {
			n.publish(out)
			out = &schemas.KVNotice{Header: schemas.H(), Node: n.cfg.Node, Epoch: b.Epoch, Medium: schemas.MediumHost}
		}
	}
	n.publish(out)
}

func (n *notifier) publish(out *schemas.KVNotice) {
	n.mu.Lock()
	n.seq[out.Epoch]++
	out.Seq = n.seq[out.Epoch]
	n.mu.Unlock()
	body, err := schemas.Encode(out)
	if err == nil {
		err = n.cfg.Conn.Publish(schemas.KVSubject(n.cfg.Cell, n.cfg.Node), body)
	}
	if err != nil {
		// Receivers see the gap in Seq and resync.
		n.cfg.Logger.Warn("KV notice not sent", "node", n.cfg.Node, "seq", out.Seq, "error", err)
	}
}

func single(b kvtier.Block) schemas.Extent {
	return schemas.Extent{Key: hex.EncodeToString(b.Key[:]), From: b.Index, N: 1}
}

// extend joins a block to the last extent when it follows it in its chain.
func extend(es []schemas.Extent, b kvtier.Block) []schemas.Extent {
	if k := len(es); k > 0 {
		last := &es[k-1]
		if last.From+last.N == b.Index && last.Key == hex.EncodeToString(b.Parent[:]) {
			last.N++
			last.Key = hex.EncodeToString(b.Key[:])
			return es
		}
	}
	return append(es, single(b))
}

// syncPage is the number of extents in one reply.
const syncPage = 4096

// sync answers one page of everything that is sealed.
func (n *notifier) sync(m *nats.Msg) {
	var q schemas.SyncRequest
	if err := schemas.Decode(m.Data, &q); err != nil {
		n.cfg.Logger.Warn("sync request not understood", "error", err)
		return
	}
	snaps, err := n.daemon.Snapshot()
	if err != nil {
		n.cfg.Logger.Warn("sync request not answered", "error", err)
		return
	}
	rep := &schemas.SyncReply{Header: schemas.H(), Node: n.cfg.Node}
	var all []schemas.Extent
	for _, s := range snaps {
		rep.Epoch = max(rep.Epoch, s.Epoch)
		for _, b := range s.Blocks {
			all = extend(all, b)
		}
	}
	n.mu.Lock()
	rep.Seq = n.seq[rep.Epoch]
	n.mu.Unlock()
	from := min(len(all), q.Page*syncPage)
	to := min(len(all), from+syncPage)
	rep.Extents, rep.More = all[from:to], to < len(all)
	body, err := schemas.Encode(rep)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		n.cfg.Logger.Warn("sync reply not sent", "error", err)
	}
}
