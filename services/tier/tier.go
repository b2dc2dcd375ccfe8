// Package tier is the process that owns a host's shared KV memory: it runs the
// allocator (package hostmem) and tells the cell what is stored and evicted.
package tier

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/kvtier/peer"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Config of a tier process.
type Config struct {
	Conn  *nats.Conn
	Cell  string
	Node  string
	Dir   string // folder of the shared memory
	Bytes int64
	// Disk is a folder below that memory, DiskBytes at most; empty for none.
	Disk      string
	DiskBytes int64
	// Order is the order of eviction, see hostmem.Config.
	Order string
	// Topology is that of the streams. Without one the node does not hear of branches, and
	// evicts by last use.
	Topology []streams.Stream
	Logger   *slog.Logger
	Version  string // of this build, for the list of services
	// Peer is the address on which other nodes get blocks from this one; empty for none.
	// PeerToken is what they must know.
	Peer, PeerToken string
	// Gives is called when Peer is served; it may be nil.
	Gives func(*peer.Server)
	// Ready is called once the memory can be used.
	Ready func(*hostmem.Daemon)
}

// Run serves the memory until ctx ends. The memory itself stays: executors go on
// reading it while no daemon runs, and the next one takes it over.
func Run(ctx context.Context, cfg Config) error {
	d, err := hostmem.NewDaemon(cfg.memory())
	if err != nil {
		return err
	}
	n := newNotifier(cfg, d)
	srv, addr, err := givePeers(cfg)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	defer closePeers(srv)
	n.peer = addr
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
	if cfg.Topology != nil {
		heard := make(chan struct{})
		hctx, stop := context.WithCancel(ctx)
		go func() { defer close(heard); listen(hctx, cfg, d) }()
		defer func() { stop(); <-heard }()
	}
	n.hello()
	if cfg.Ready != nil {
		cfg.Ready(d)
	}
	cfg.Logger.Info("KV memory is served", "node", cfg.Node, "dir", cfg.Dir, "bytes", cfg.Bytes, "peer", addr)
	for {
		select {
		case <-ctx.Done():
			return d.Close()
		case b := <-d.Events():
			n.notify(b)
		}
	}
}
