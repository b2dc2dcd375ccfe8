package serve

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/services/gateway"
	"github.com/weir-dev/weir/services/turns"
)

// drainWait is how long requests in work may take at the end.
const drainWait = 2 * time.Second

// startGateway listens before it returns, so that a busy port is an error of the
// start.
func (h *host) startGateway(ctx context.Context, nc *nats.Conn) error {
	if err := h.showFleet(nc); err != nil {
		return err
	}
	request, publish := h.gatewaySpans()
	g, err := gateway.New(gateway.Options{
		Conn: nc, Cell: h.o.Cell, Models: []gateway.Model{{Name: h.model.Name, Created: time.Now().Unix()}},
		Context: h.o.Context, EnableThinking: strings.Contains(h.model.Template, "enable_thinking"), KeepBillingHeader: h.o.KeepBilling,
		Fingerprint: "weir-" + h.model.Engine, Deadline: h.o.Deadline, Logger: h.log,
		Registerer: h.metrics.Registry(), Metrics: h.metrics.Handler(), Span: request,
		Turns: turns.Options{Deadline: h.o.Deadline, Span: publish}, Erase: h.eraser(nc),
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", h.o.HTTP)
	if err != nil {
		return err
	}
	svc, err := turns.Serve(nc, g.Turns(), turns.ServeOptions{Version: Version(), Logger: h.log})
	if err != nil {
		_ = l.Close()
		return err
	}
	h.goRun(ctx, "gateway", func(ctx context.Context) error {
		ended := make(chan struct{})
		context.AfterFunc(ctx, func() {
			defer close(ended)
			wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWait)
			defer cancel()
			if err := svc.Stop(); err != nil {
				h.log.Warn("service weir.turn not stopped", "error", err)
			}
			if err := g.Shutdown(wait); err != nil {
				h.log.Warn("gateway not shut down in order", "error", err)
			}
		})
		if err := g.Serve(l); err != nil {
			return err
		}
		<-ended
		return nil
	})
	return nil
}
