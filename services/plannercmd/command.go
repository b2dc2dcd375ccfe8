// Package plannercmd is `weir planner`: what the planner of a cell decided and why, what
// it may do, and the replay of its recordings.
//
// Read command.go (the commands), log.go (the decisions), explain.go (one of them with
// what came of it), mode.go and replay.go.
package plannercmd

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

// options of all commands.
type options struct{ url, cell, output string }

// NewCommand makes `weir planner` with its sub-commands.
func NewCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use: "planner", Short: "See what the planner decided and why, pause it, replay its recordings", Args: cobra.NoArgs,
		Long: "Without a sub-command: whether a planner is active, what it may do, and its last decision.",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.status(cmd) },
	}
	url := os.Getenv("WEIR_NATS")
	if url == "" {
		url = nats.DefaultURL
	}
	f := c.PersistentFlags()
	f.StringVar(&o.url, "nats", url, "URL of NATS (default: WEIR_NATS)")
	f.StringVar(&o.cell, "cell", schemas.DefaultCell, "cell")
	f.StringVarP(&o.output, "output", "o", "", "json: machine-readable lines")
	c.AddCommand(o.logCommand(), o.explainCommand(), o.replayCommand(),
		o.modeCommand("pause", schemas.ModePaused, "Keep roles as they are; what is lost or unfit is still taken out of work"),
		o.modeCommand("resume", schemas.ModeAct, "Let the planner change roles"),
		o.modeCommand("advise", schemas.ModeAdvise, "Let the planner say what it would change, and what that would have brought"))
	return c
}

// connect fails soon: these commands are for people.
func (o *options) connect() (*nats.Conn, jetstream.JetStream, error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	nc, err := nats.Connect(o.url, nats.Name("weir-cli"), nats.Timeout(3*time.Second), nats.MaxReconnects(3))
	if err != nil {
		return nil, nil, fmt.Errorf("NATS is not reachable at %s: %w; name another with --nats", o.url, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, js, nil
}

func (o *options) check() error {
	if o.output != "" && o.output != "json" {
		return fmt.Errorf("%w: -o is %q, only json is known", serve.ErrUsage, o.output)
	}
	if err := schemas.CheckID("--cell", o.cell); err != nil {
		return fmt.Errorf("%w: %w", serve.ErrUsage, err)
	}
	return nil
}

func printJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// ago is a time before now for people.
func ago(now time.Time, ns int64) string {
	if ns == 0 {
		return "never"
	}
	return now.Sub(time.Unix(0, ns)).Round(time.Second).String() + " ago"
}
