package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/control"
	"github.com/weir-dev/weir/services/executor"
	"github.com/weir-dev/weir/services/gateway"
	"github.com/weir-dev/weir/services/telemetry"
	"github.com/weir-dev/weir/streams/jsrun"
)

// flushWait bounds the time that is spent at the end on sending spans.
const flushWait = 3 * time.Second

// observe prepares traces and metrics of this process. With --metrics it listens
// before it returns, so that a busy port is an error of the start.
func (h *host) observe(ctx context.Context) error {
	instance := h.o.ID
	if instance == "" {
		instance = strings.Join(h.o.Targets, "-")
	}
	var err error
	h.traces, err = telemetry.New(ctx, telemetry.Config{
		Instance: instance, Version: Version(), TraceFile: h.o.TraceFile, Logger: h.log,
	})
	if err != nil {
		return err
	}
	h.metrics = telemetry.NewMetrics(Version())
	if h.o.Metrics == "" {
		return nil
	}
	l, err := net.Listen("tcp", h.o.Metrics)
	if err != nil {
		return fmt.Errorf("--metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", h.metrics.Handler())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	h.log.Info("metrics are served", "url", "http://"+l.Addr().String()+"/metrics")
	h.goRun(ctx, "metrics", func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { _ = srv.Close() })
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

// showFleet lets the process that decides show all executors of the cell.
func (h *host) showFleet(nc *nats.Conn) error {
	if h.fleet != nil || h.metrics == nil || !h.has("gateway") && (h.o.Metrics == "" || !h.has("router")) {
		return nil
	}
	var err error
	h.fleet, err = h.metrics.Fleet(nc, h.o.Cell)
	return err
}

// observed adds the hooks of one deciding service to its configuration.
func (h *host) observed(cfg control.Config, service string) control.Config {
	cfg.Actor = h.metrics.Actor
	cfg.Stats = h.metrics.Runner
	if service == "lineage" {
		if l := telemetry.NewLineage(h.traces.Tracer(service)); l != nil {
			cfg.OnIn = func(_ string, in *schemas.Msg) { l.In(in) }
			cfg.OnOut = func(_ string, in, out *schemas.Msg) { l.Out(in, out) }
			cfg.OnOp = func(_ string, op *schemas.Op, start time.Time, done *schemas.OpDone) { l.Op(op, start, done) }
		}
		return cfg
	}
	if service == "planner" {
		p, err := h.metrics.Planner(h.traces.Tracer(service))
		if err != nil {
			h.log.Warn("the planner has no metrics", "error", err)
		}
		cfg.OnIn = func(_ string, in *schemas.Msg) { p.In(in) }
		cfg.OnOut = func(_ string, in, out *schemas.Msg) { p.Out(in, out) }
		return cfg
	}
	r := telemetry.NewRouter(h.traces.Tracer(service))
	cfg.OnIn = func(_ string, in *schemas.Msg) {
		if in.Kind == schemas.KindResult {
			h.metrics.Turn(in.Result)
		}
		r.In(in)
	}
	if r != nil {
		cfg.OnOut = func(_ string, in, out *schemas.Msg) { r.Out(in, out) }
	}
	return cfg
}

// executorHooks are the hooks of an executor.
func (h *host) executorHooks() executor.Hooks {
	hooks := executor.Hooks{Stats: func(s *jsrun.Stats) { h.metrics.Runner("executor", s) }, Peers: h.peerTakes}
	t := h.traces.Tracer("executor")
	if e, f := telemetry.NewExecutor(t), telemetry.NewFlips(t); e != nil {
		hooks.In = func(in *schemas.Msg) { e.In(in); f.In(in) }
		hooks.Out = func(in, out *schemas.Msg) { e.Out(in, out); f.Out(in, out) }
		hooks.Op = e.Op
	}
	return hooks
}

// gatewaySpans are the spans of a request and of the publish of its turn.
func (h *host) gatewaySpans() (request func(string, schemas.Trace) (schemas.Trace, func(gateway.Answered)), publish func(schemas.Trace, string, string, int) (schemas.Trace, func(error))) {
	t := h.traces.Tracer("gateway")
	if t == nil {
		return nil, nil
	}
	return func(endpoint string, in schemas.Trace) (schemas.Trace, func(gateway.Answered)) {
		out, end := t.Request(endpoint, in)
		return out, func(a gateway.Answered) { end(telemetry.Answered(a)) }
	}, t.Publish
}

// tierStats shows the memory once it is served.
func (h *host) tierStats(d *hostmem.Daemon) {
	if err := errors.Join(h.metrics.Tier(d.Stats), h.metrics.Retention(d.Retention)); err != nil {
		h.log.Warn("KV memory has no metrics", "error", err)
	}
	if _, ok := d.Disk(); !ok {
		return
	}
	if err := h.metrics.Disk(d.Disk); err != nil {
		h.log.Warn("KV disk has no metrics", "error", err)
	}
}

// flush sends the spans that are queued.
func (h *host) flush() {
	if h.fleet != nil {
		h.fleet()
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWait)
	defer cancel()
	if err := h.traces.Shutdown(ctx); err != nil {
		h.log.Warn("spans not exported", "error", err)
	}
}
