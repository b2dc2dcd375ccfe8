// Package sessioncmd is `weir session`: what lineage knows of a session, and erasing
// it for good.
package sessioncmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/serve"
)

// where says which session is meant and how it is reached.
type where struct {
	url, cell, tenant, output string
}

// NewCommand makes "weir session".
func NewCommand() *cobra.Command {
	w := &where{}
	c := &cobra.Command{Use: "session", Short: "Show or erase a session", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	url := os.Getenv("WEIR_NATS")
	if url == "" {
		url = nats.DefaultURL
	}
	f := c.PersistentFlags()
	f.StringVar(&w.url, "nats", url, "URL of NATS (default: WEIR_NATS)")
	f.StringVar(&w.cell, "cell", schemas.DefaultCell, "cell")
	f.StringVar(&w.tenant, "tenant", schemas.DefaultTenant, "tenant of the session")
	f.StringVarP(&w.output, "output", "o", "", "json: one machine-readable object")
	c.AddCommand(showCommand(w), deleteCommand(w))
	return c
}

// check finds wrong flags before anything is asked.
func (w *where) check(session string) error {
	if w.output != "" && w.output != "json" {
		return fmt.Errorf("%w: -o is %q, only json is known", serve.ErrUsage, w.output)
	}
	for _, f := range [...]struct{ name, v string }{{"--cell", w.cell}, {"--tenant", w.tenant}, {"SESSION", session}} {
		if err := schemas.CheckID(f.name, f.v); err != nil {
			return fmt.Errorf("%w: %w", serve.ErrUsage, err)
		}
	}
	return nil
}

// connect fails soon: the commands are for people.
func (w *where) connect() (*nats.Conn, error) {
	nc, err := nats.Connect(w.url, nats.Name("weir-session"), nats.Timeout(3*time.Second), nats.MaxReconnects(3))
	if err != nil {
		return nil, fmt.Errorf("NATS is not reachable at %s: %w; name another with --nats", w.url, err)
	}
	return nc, nil
}

// ask asks lineage.
func (w *where) ask(ctx context.Context, nc *nats.Conn, session string) (*schemas.SessionReply, error) {
	b, err := schemas.Encode(&schemas.SessionRequest{Header: schemas.H(), Tenant: w.tenant, Session: session})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, schemas.SessionSubject(w.cell), b)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("lineage is not running in cell %s of %s; is weir up?", w.cell, w.url)
	}
	if err != nil {
		return nil, fmt.Errorf("lineage does not answer: %w", err)
	}
	r := new(schemas.SessionReply)
	return r, schemas.Decode(m.Data, r)
}

func printJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
