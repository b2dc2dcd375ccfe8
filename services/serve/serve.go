package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/services/control"
	"github.com/weir-dev/weir/services/executor"
	"github.com/weir-dev/weir/services/model"
	"github.com/weir-dev/weir/services/proc"
	"github.com/weir-dev/weir/services/record"
	"github.com/weir-dev/weir/services/telemetry"
	"github.com/weir-dev/weir/services/tier"
	"github.com/weir-dev/weir/services/tokenizer"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// host is what the targets of one process share.
type host struct {
	o     Options
	log   *slog.Logger
	topo  []streams.Stream
	nats  *server.Server
	store *os.File // lock on the server's store
	conns []*nats.Conn
	model *model.Model

	traces  *telemetry.Telemetry
	metrics *telemetry.Metrics
	record  *record.Recorder
	fleet   func() // ends the subscriptions behind the executors' metrics

	wg     sync.WaitGroup
	cancel context.CancelCauseFunc
}

// Run runs the targets until ctx ends or one of them fails.
func Run(ctx context.Context, o Options) error {
	if len(o.Targets) == 0 {
		return fmt.Errorf("%w: --target names no service", ErrUsage)
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if err := o.name(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h := &host{o: o, log: o.Log(nil), topo: o.Topology(), cancel: cancel}
	parentGone := context.AfterFunc(ctx, func() {})
	defer parentGone()
	err := h.observe(ctx)
	if err == nil {
		err = h.start(ctx)
	}
	if err == nil {
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	cancel(err)
	h.wg.Wait()
	h.close()
	if errors.Is(err, context.Canceled) || errors.Is(err, proc.ErrParent) {
		return nil
	}
	return err
}

func (h *host) has(target string) bool { return slices.Contains(h.o.Targets, target) }

// start brings the targets up in order.
func (h *host) start(ctx context.Context) error {
	if h.has("nats") {
		if err := h.startNATS(ctx); err != nil {
			return err
		}
	}
	nc, err := h.connect(ctx, "provision")
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := provision(ctx, js, h.topo); err != nil {
		return err
	}
	for _, t := range []string{"tokenizer", "lineage", "router", "gateway", "executor"} {
		if h.has(t) {
			if h.model, err = h.openModel(); err != nil {
				return err
			}
			break
		}
	}
	for _, t := range Targets() {
		if !h.has(t) || t == "nats" {
			continue
		}
		if err := h.startTarget(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return nil
}

// provision retries while another process is making the same streams or NATS is
// still starting.
func provision(ctx context.Context, js jetstream.JetStream, topo []streams.Stream) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return jsrun.Provision(ctx, js, topo)
}

// connect opens a connection for one service. Each has its own, so that a slow
// one does not hold up the others.
func (h *host) connect(ctx context.Context, name string) (*nats.Conn, error) {
	var nc *nats.Conn
	var err error
	for try := 0; ; try++ {
		nc, err = jsrun.Connect(jsrun.ConnectOptions{Server: h.nats, URL: h.o.URL(), Name: "weir-" + name, Logger: h.log})
		if err == nil || h.nats != nil || try >= 100 {
			break
		}
		select { // NATS may be starting
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err != nil {
		return nil, err
	}
	h.conns = append(h.conns, nc)
	return nc, nil
}

func (h *host) openModel() (*model.Model, error) {
	return model.Open(model.Options{
		Engine: h.o.Engine, Path: h.o.ModelPath, Dir: h.o.Dir, LibDir: h.o.LibDir, Name: h.o.ModelName, Log: os.Stderr, NullVision: h.o.NullVision,
	})
}

// goRun runs a service; when it ends before ctx, the process ends.
func (h *host) goRun(ctx context.Context, name string, f func(context.Context) error) {
	h.wg.Go(func() {
		err := f(ctx)
		if ctx.Err() != nil {
			if err != nil {
				h.log.Warn("service ended with an error", "service", name, "error", err)
			}
			return
		}
		if err == nil {
			err = errors.New("it ended")
		}
		h.cancel(fmt.Errorf("%s: %w", name, err))
	})
}

func (h *host) startTarget(ctx context.Context, name string) error {
	nc, err := h.connect(ctx, name)
	if err != nil {
		return err
	}
	h.metrics.Conn(name, nc)
	switch name {
	case "tier":
		h.goRun(ctx, name, func(ctx context.Context) error { return h.runTier(ctx, nc) })
	case "tokenizer":
		r, err := tokenizer.New(h.model, h.o.Context)
		if err != nil {
			return err
		}
		span := h.traces.Tracer(name).Answer
		h.goRun(ctx, name, func(ctx context.Context) error { return tokenizer.Serve(ctx, nc, r, Version(), span) })
	case "lineage":
		var local *tokenizer.Renderer
		if h.has("tokenizer") {
			if local, err = tokenizer.New(h.model, h.o.Context); err != nil {
				return err
			}
		}
		cfg := h.observed(h.control(nc), name)
		h.goRun(ctx, name, func(ctx context.Context) error { return control.Lineage(ctx, cfg, local) })
	case "router":
		if err := h.showFleet(nc); err != nil {
			return err
		}
		cfg := h.observed(h.control(nc), name)
		if cfg.Record, err = h.recorder(); err != nil {
			return err
		}
		h.goRun(ctx, name, func(ctx context.Context) error { return control.Router(ctx, cfg) })
	case "planner":
		return h.startPlanner(ctx, nc)
	case "gateway":
		return h.startGateway(ctx, nc)
	case "executor":
		hooks := h.executorHooks()
		h.goRun(ctx, name, func(ctx context.Context) error { return h.runExecutor(ctx, nc, hooks) })
	}
	return nil
}

func (h *host) control(nc *nats.Conn) control.Config {
	id := h.o.ID
	if id == "" {
		id = "control"
	}
	return control.Config{
		Conn: nc, Topology: h.topo, Cell: h.o.Cell, ID: id, Model: h.model, Context: h.o.Context, Logger: h.log,
		DirectMax: h.o.DirectMax, Admit: h.o.Admit, Deadline: h.o.Deadline, Keep: h.o.keepSessions(),
	}
}

func (h *host) runTier(ctx context.Context, nc *nats.Conn) error {
	var d *hostmem.Daemon
	err := tier.Run(ctx, tier.Config{
		Conn: nc, Cell: h.o.Cell, Node: h.o.Node, Dir: h.o.Arena, Bytes: h.o.KVMem, Order: h.o.KVOrder, Topology: h.topo, Logger: h.log, Version: Version(),
		Peer: h.o.peer(), PeerToken: peerToken(), Gives: h.peerGives,
		Disk: h.o.DiskDir(), DiskBytes: h.o.KVDiskBytes,
		Ready: func(x *hostmem.Daemon) {
			d = x
			h.tierStats(x)
		},
	})
	if errors.Is(context.Cause(ctx), proc.ErrParent) && d != nil {
		// Nobody is left to use the memory, or to remove it, unless the next stack has
		// taken the folder over already.
		if rm := hostmem.Remove(h.o.Arena); !errors.Is(rm, hostmem.ErrBusy) {
			err = errors.Join(err, rm)
		}
	}
	return err
}

func (h *host) runExecutor(ctx context.Context, nc *nats.Conn, hooks executor.Hooks) error {
	if h.o.Role != "" {
		if err := assign.First(ctx, nc, h.o.Cell, h.o.ID, schemas.Role(h.o.Role), "weir serve"); err != nil {
			return err
		}
	}
	device, err := h.o.SimDevice()
	if err != nil {
		return err
	}
	return executor.Run(ctx, executor.Config{
		Conn: nc, Topology: h.topo, Cell: h.o.Cell, ID: h.o.ID, Node: h.o.Node, Arena: h.o.Arena, Model: h.model, Logger: h.log, Hooks: hooks, PeerToken: peerToken(),
		Device: device, NoKeep: !h.o.Keep, Engine: model.EngineOptions{Slots: h.o.Slots, Context: h.o.Context, Threads: h.o.Threads, GPULayers: h.o.GPULayers, Log: os.Stderr},
	})
}

func (h *host) close() {
	h.flush()
	for _, nc := range h.conns {
		nc.Close()
	}
	if h.nats != nil {
		h.nats.Shutdown()
		h.nats.WaitForShutdown()
	}
	if h.store != nil {
		_ = h.store.Close() // nothing was written to it; this gives up the lock
	}
	if h.model != nil {
		if err := h.model.Close(); err != nil {
			h.log.Warn("model not released", "error", err)
		}
	}
}
