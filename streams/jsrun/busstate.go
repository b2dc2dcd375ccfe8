package jsrun

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
)

// busState follows the connection. It belongs to the runner's goroutine, except
// for wg.
type busState struct {
	away      bool // not connected
	told      bool // the actor was told so
	repairing bool // streams are being looked after
	repairAt  schemas.Time
	wg        sync.WaitGroup
	cancel    context.CancelFunc
}

// wait ends the repair that is running, if any.
func (b *busState) wait() {
	if b.cancel != nil {
		b.cancel()
	}
	b.wg.Wait()
}

// connChanged reacts to a change of the connection. It goes by the event and not
// by the state at this moment, which may be connected again already.
func (r *Runner) connChanged(st nats.Status) error {
	switch st {
	case nats.CLOSED:
		return ErrClosed
	case nats.CONNECTED:
		if r.bus.away {
			r.bus.away = false
			r.repair()
		}
	case nats.DISCONNECTED, nats.RECONNECTING:
		if !r.bus.away {
			r.bus.away, r.bus.told = true, true
			r.box.hold()
			why := "disconnected"
			if err := r.cfg.Conn.LastError(); err != nil {
				why += ": " + err.Error()
			}
			r.step(&schemas.Msg{Kind: schemas.KindBus, Err: why}, nil)
		}
	default: // draining, connecting: another event follows
	}
	return nil
}

// streamsMissing is called when nobody took a publish. At most once a second,
// because a subject outside of the topology would ask for ever.
func (r *Runner) streamsMissing(now schemas.Time) {
	if now >= r.bus.repairAt+schemas.Time(time.Second) {
		r.repair()
	}
}

// repair makes the streams again, of which those in memory are gone after a
// restart, and sends everything that is outstanding afterwards. Nothing is sent
// meanwhile, so that the order of publishes is kept.
func (r *Runner) repair() {
	b := &r.bus
	if b.repairing || b.away || r.stopping {
		return
	}
	b.repairing, b.repairAt = true, r.cfg.Clock()
	r.box.hold()
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.wg.Go(func() {
		defer cancel()
		backoff := minBackoff
		for {
			tryCtx, done := context.WithTimeout(ctx, 10*time.Second)
			err := Provision(tryCtx, r.js, r.cfg.Topology)
			done()
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				r.posted.call(r.repaired)
				return
			}
			if r.cfg.Conn.IsClosed() {
				return
			}
			r.cfg.Logger.Warn("streams cannot be looked after", "service", r.cfg.Name, "error", err, "again_in", backoff)
			t := time.NewTimer(backoff)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return
			}
			backoff = min(2*backoff, maxBackoff)
		}
	})
}

// repaired goes on after NATS came back.
func (r *Runner) repaired() {
	r.bus.repairing = false
	if r.cfg.Conn.Status() != nats.CONNECTED {
		return // connChanged starts another repair
	}
	r.bus.away = false
	for _, in := range r.inputs {
		in.poke()
	}
	r.box.release(r.cfg.Clock())
	if r.bus.told {
		r.bus.told = false
		r.step(&schemas.Msg{Kind: schemas.KindBus}, nil)
	}
}

// stop finishes after the inputs have ended: outstanding publishes get their
// acknowledgements, the last snapshot is written, what is in hand goes back to
// the server at once.
func (r *Runner) stop() error {
	r.stopping = true
	deadline := time.NewTimer(r.cfg.StopTimeout)
	defer deadline.Stop()
	scan := time.NewTicker(time.Duration(scanEvery))
	defer scan.Stop()
	for open := true; open && r.box.count > 0; {
		select {
		case m := <-r.box.acks:
			r.answer(m)
		case <-scan.C:
			r.drainPosted()
			r.timed()
		case <-deadline.C:
			r.cfg.Logger.Warn("stopped with publishes outstanding", "service", r.cfg.Name, "count", r.box.count)
			open = false
		}
	}
	r.bus.wait()
	err := r.lastSnapshot()
	for _, in := range r.inputs {
		for _, reply := range in.replies() {
			_ = r.cfg.Conn.Publish(reply, nakBody)
		}
	}
	r.stats.Held.Store(0)
	r.dropConsumers()
	return err
}

// dropConsumers removes the consumers that have no durable name; the server
// would do it a minute later.
func (r *Runner) dropConsumers() {
	if r.cfg.Conn.Status() != nats.CONNECTED {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, in := range r.inputs {
		if in.cfg.Durable == "" && !in.cfg.Core {
			_ = r.js.DeleteConsumer(ctx, in.cfg.Stream, in.consumer)
		}
	}
	_ = r.cfg.Conn.FlushWithContext(ctx)
}
