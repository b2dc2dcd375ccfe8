package tier

import (
	"context"
	"errors"
	"time"

	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// listener hands BRANCH messages to the memory. It is an actor only to be run like
// one.
type listener struct{ daemon *hostmem.Daemon }

var _ schemas.Actor = listener{}

// Step hands on one message.
func (l listener) Step(_ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	if in.Kind == schemas.KindBranch && in.Branch != nil {
		c := *in.Branch
		l.daemon.Branch(&c)
	}
	return out
}

// Next: it acts on messages only.
func (listener) Next() schemas.Time { return schemas.Never }

// Snapshot is empty: where branches stand is said again.
func (listener) Snapshot(dst []byte) ([]byte, error) { return dst, nil }

// Restore has nothing to restore.
func (listener) Restore([]byte) error { return nil }

// listenAgain is the pause after the stream could not be read.
const listenAgain = time.Second

// listen reads what is said of branches until ctx ends. The stream holds the last two
// minutes, in which lineage says of every live branch where it stands: so a memory that
// was served by another process before is ordered again at once.
func listen(ctx context.Context, cfg Config, d *hostmem.Daemon) {
	for ctx.Err() == nil {
		r, err := jsrun.New(jsrun.Config{
			Conn: cfg.Conn, Topology: cfg.Topology, Actor: listener{d}, Name: "tier-" + cfg.Node, Logger: cfg.Logger,
			Inputs: []streams.Input{{
				Stream: streams.Branch, Filters: []string{schemas.BranchSubject(cfg.Cell, cfg.Node)},
				Policy: streams.NoAck, Deliver: streams.DeliverAll,
			}},
		})
		if err == nil {
			err = r.Run(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the reader ended")
		}
		cfg.Logger.Warn("branches are not heard of, their blocks go by what was known", "node", cfg.Node, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(listenAgain):
		}
	}
}
