package opscmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/serve"
)

// probe asks one thing whether it works. It is what containers use as a health
// check: their image has no curl.
type probe struct {
	target   string
	cell     string
	executor bool
	id       string
}

// probePause is the pause between tries.
const probePause = 200 * time.Millisecond

// Probe is `weir probe`.
func Probe() *cobra.Command {
	p := probe{}
	wait := 3 * time.Second
	c := &cobra.Command{
		Use: "probe URL", Short: "Exit with 0 when a URL answers: for health checks", Args: cobra.ExactArgs(1), Hidden: true,
		Long: "An http URL must answer with a status of 2xx. A nats URL must have JetStream; with --executor,\na heartbeat of an executor with a role must arrive there.",
		RunE: func(cmd *cobra.Command, args []string) error {
			p.target = args[0]
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			return p.run(ctx)
		},
	}
	f := c.Flags()
	f.DurationVar(&wait, "wait", wait, "how long to try")
	f.BoolVar(&p.executor, "executor", false, "wait for a heartbeat of the executor")
	f.StringVar(&p.id, "id", "", "id of the executor (default: the host's name)")
	f.StringVar(&p.cell, "cell", schemas.DefaultCell, "cell of the executor")
	return c
}

// run tries until ctx ends and returns the last error.
func (p *probe) run(ctx context.Context) error {
	u, err := url.Parse(p.target)
	if err != nil {
		return fmt.Errorf("%w: %w", serve.ErrUsage, err)
	}
	ask := p.nats
	switch u.Scheme {
	case "http", "https":
		if p.executor {
			return fmt.Errorf("%w: --executor needs a nats URL", serve.ErrUsage)
		}
		ask = p.http
	case "nats", "tls":
	default:
		return fmt.Errorf("%w: %q is neither an http nor a nats URL", serve.ErrUsage, p.target)
	}
	if p.id == "" {
		if p.id, err = serve.HostID(); err != nil {
			return err
		}
	}
	for {
		err := ask(ctx)
		if err == nil || errors.Is(err, serve.ErrUsage) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("probe of %s: %w", p.target, err)
		case <-time.After(probePause):
		}
	}
}

func (p *probe) http(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.target, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", serve.ErrUsage, err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, 512)) // only for the message
	_ = r.Body.Close()
	if r.StatusCode/100 != 2 {
		return fmt.Errorf("status %d: %s", r.StatusCode, body)
	}
	return nil
}

func (p *probe) nats(ctx context.Context) error {
	nc, err := nats.Connect(p.target, nats.Name("weir-probe"), nats.Timeout(2*time.Second), nats.NoReconnect())
	if err != nil {
		return err
	}
	defer nc.Close()
	if !p.executor {
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		_, err = js.AccountInfo(ctx)
		return err
	}
	sub, err := nc.SubscribeSync(schemas.HBSubject(p.cell, p.id))
	if err != nil {
		return fmt.Errorf("%w: %w", serve.ErrUsage, err)
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return fmt.Errorf("no heartbeat of executor %s with a role: %w", p.id, err)
		}
		var h schemas.Heartbeat
		if schemas.Decode(m.Data, &h) == nil && !h.Dead && h.Role != "" {
			return nil
		}
	}
}
