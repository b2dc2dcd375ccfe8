package serve

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
)

// startGateway listens before it returns, so that a busy port is an error of the
// start.
func (h *host) startGateway(ctx context.Context, nc *nats.Conn) error {
	l, err := net.Listen("tcp", h.o.HTTP)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	h.goRun(ctx, "gateway", func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { _ = srv.Close() })
		return srv.Serve(l)
	})
	return nil
}
