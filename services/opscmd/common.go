package opscmd

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/serve"
)

// bus is what every command here needs.
type bus struct {
	url, cell, output string
}

func (b *bus) flags(c *cobra.Command) {
	url := os.Getenv("WEIR_NATS")
	if url == "" {
		url = nats.DefaultURL
	}
	f := c.PersistentFlags()
	f.StringVar(&b.url, "nats", url, "URL of NATS (default: WEIR_NATS)")
	f.StringVar(&b.cell, "cell", schemas.DefaultCell, "cell")
	f.StringVarP(&b.output, "output", "o", "", "json: machine-readable lines")
}

// connect fails soon: these commands are for people.
func (b *bus) connect() (*nats.Conn, jetstream.JetStream, error) {
	if b.output != "" && b.output != "json" {
		return nil, nil, fmt.Errorf("%w: -o is %q, only json is known", serve.ErrUsage, b.output)
	}
	nc, err := nats.Connect(b.url, nats.Name("weir-cli"), nats.Timeout(3*time.Second), nats.MaxReconnects(3))
	if err != nil {
		return nil, nil, fmt.Errorf("NATS is not reachable at %s: %w; name another with --nats", b.url, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, js, nil
}

func printJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
