package control

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// lister does the router's operations outside the bus: it asks nodes for what they
// hold.
type lister struct {
	ctx  context.Context //nolint:containedctx // lives as long as the lease
	cfg  Config
	asks *workers
}

// listers is the number of nodes that are asked at once, listWait how long one may
// take to make its list: it sorts all its blocks for the first page.
const (
	listers  = 4
	listWait = 10 * time.Second
)

func newLister(ctx context.Context, cfg Config) *lister {
	l := &lister{ctx: ctx, cfg: cfg, asks: newWorkers("asking nodes for what they hold")}
	l.asks.run(ctx, listers)
	return l
}

// do starts an operation. It never blocks the actor.
func (l *lister) do(op *schemas.Op, done func(schemas.OpDone)) {
	start := time.Now()
	end := func(d schemas.OpDone) {
		d.ID, d.TookNS = op.ID, time.Since(start).Nanoseconds()
		if l.cfg.OnOp != nil {
			l.cfg.OnOp("router", op, start, &d)
		}
		done(d)
	}
	if op.Sync == nil {
		end(schemas.OpDone{Err: "the router has no operation of this kind"})
		return
	}
	if !l.asks.take(func() { end(l.list(op.Sync)) }) {
		end(schemas.OpDone{Err: fmt.Sprintf("the queue for %s is full", l.asks.kind), Code: schemas.CodeBusy})
	}
}

// list asks a node for one page. The router asks again after a while when nobody answers.
func (l *lister) list(op *schemas.SyncOp) schemas.OpDone {
	body, err := schemas.Encode(&schemas.SyncRequest{Header: schemas.H(), Page: op.Page})
	if err != nil {
		return schemas.OpDone{Err: err.Error()}
	}
	ctx, cancel := context.WithTimeout(l.ctx, listWait)
	defer cancel()
	m, err := l.cfg.Conn.RequestWithContext(ctx, schemas.SyncSubject(op.Node), body)
	if err != nil {
		return schemas.OpDone{Err: fmt.Sprintf("node %s does not say what it holds: %s", op.Node, err)}
	}
	d := schemas.OpDone{Sync: &schemas.SyncReply{}}
	if err := schemas.Decode(m.Data, d.Sync); err != nil {
		return schemas.OpDone{Err: fmt.Sprintf("node %s: %s", op.Node, err)}
	}
	return d
}
