package explaincmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/serve"
	"github.com/weir-dev/weir/services/tier"
)

// options of the command.
type options struct {
	url, creds, cell, tenant, output string
	limit                            int
}

// NewCommand makes "weir explain" with its sub-commands turn, session, block and flip.
func NewCommand() *cobra.Command {
	o := &options{limit: 50}
	c := &cobra.Command{
		Use: "explain", Short: "Say where a turn's time went, why its prompt was computed again, what memory holds, and how a role changed",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.register(c)
	turn := &cobra.Command{
		Use: "turn SESSION TURN", Short: "Waterfall of one turn, what was found of its prompt, and why the rest was not", Args: cobra.ExactArgs(2),
		Example: "  weir explain turn s-1 t-7\n  weir explain turn s-1 t-7 -o json",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.turn(cmd, args[0], args[1]) },
	}
	session := &cobra.Command{
		Use: "session SESSION", Short: "Branches and turns of a session, and what memory holds of it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.session(cmd, args[0]) },
	}
	session.Flags().IntVar(&o.limit, "limit", o.limit, "newest turns to list")
	block := &cobra.Command{
		Use: "block KEY …", Short: "Where KV blocks are, which branches hold them, and why they would go next",
		Long: "Asks every tier node of the cell. A key is 64 hex digits and names a block with all that\n" +
			"come before it in its prefix: notices, jobs and `weir explain session` name contexts by the\n" +
			"key of their last block.",
		Example: "  weir explain session s-1\n  weir explain block 1609d451a7432a8a21805475ff20e9a3ea40f3c6034f3ac1b4eef0b583c04d4b",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.block(cmd, args) },
	}
	c.AddCommand(turn, session, block, o.flipCommand())
	return c
}

func (o *options) register(c *cobra.Command) {
	url := os.Getenv("WEIR_NATS")
	if url == "" {
		url = nats.DefaultURL
	}
	f := c.PersistentFlags()
	f.StringVar(&o.url, "nats", url, "URL of NATS (default: WEIR_NATS)")
	f.StringVar(&o.creds, "creds", "", "NATS credentials file")
	f.StringVar(&o.cell, "cell", schemas.DefaultCell, "cell that serves the session")
	f.StringVar(&o.tenant, "tenant", schemas.DefaultTenant, "tenant")
	f.StringVarP(&o.output, "output", "o", "", "json: one machine-readable line")
}

// source connects. The command is for people, so it gives up soon.
func (o *options) source(ids ...[2]string) (*Source, func(), error) {
	if o.output != "" && o.output != "json" {
		return nil, nil, fmt.Errorf("%w: -o is %q, only json is known", serve.ErrUsage, o.output)
	}
	for _, id := range append(ids, [2]string{"--tenant", o.tenant}, [2]string{"--cell", o.cell}) {
		if err := schemas.CheckID(id[0], id[1]); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", serve.ErrUsage, err)
		}
	}
	opts := []nats.Option{nats.Name("weir-cli"), nats.Timeout(3 * time.Second), nats.MaxReconnects(3)}
	if o.creds != "" {
		opts = append(opts, nats.UserCredentials(o.creds))
	}
	nc, err := nats.Connect(o.url, opts...)
	if err != nil {
		return nil, nil, fmt.Errorf("NATS is not reachable at %s: %w; name another with --nats", o.url, err)
	}
	s, err := NewSource(nc, o.cell, o.tenant)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return s, nc.Close, nil
}

func (o *options) turn(cmd *cobra.Command, session, turn string) error {
	s, end, err := o.source([2]string{"SESSION", session}, [2]string{"TURN", turn})
	if err != nil {
		return err
	}
	defer end()
	rep, err := s.Turn(cmd.Context(), session, turn)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(rep)
	}
	return printTurn(cmd.OutOrStdout(), rep)
}

func (o *options) session(cmd *cobra.Command, session string) error {
	if o.limit < 1 {
		return fmt.Errorf("%w: --limit is %d, it must be positive", serve.ErrUsage, o.limit)
	}
	s, end, err := o.source([2]string{"SESSION", session})
	if err != nil {
		return err
	}
	defer end()
	rep, err := s.Session(cmd.Context(), session, o.limit)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(rep)
	}
	return printSession(cmd.OutOrStdout(), rep)
}

// Turn explains one turn. The error means that NATS could not be read, or that
// nothing at all is known of the turn.
func (s *Source) Turn(ctx context.Context, session, turn string) (*TurnReport, error) {
	f, err := s.read(ctx, session, turn)
	if err != nil {
		return nil, err
	}
	if f.turn(turn) == nil && f.results[turn] == nil {
		return nil, fmt.Errorf("nothing is known of turn %s in session %s of tenant %s: it was never published, or has aged out", turn, session, s.tenant)
	}
	rep := turnReport(f, turn)
	if rep.Miss != nil {
		s.locate(ctx, f, turn, rep.Miss)
		rep.Notes = f.notes
	}
	return rep, nil
}

// Session explains a session with its newest turns, up to limit.
func (s *Source) Session(ctx context.Context, session string, limit int) (*SessionReport, error) {
	f, err := s.read(ctx, session, "")
	if err != nil {
		return nil, err
	}
	if len(f.turns) == 0 && len(f.results) == 0 && (f.lineage == nil || !f.lineage.Found) {
		return nil, fmt.Errorf("nothing is known of session %s of tenant %s: it had no turn, was deleted, or has aged out", session, s.tenant)
	}
	held := s.memory(ctx, f, tier.BlocksRequest{Tenant: s.tenant, Session: session})
	rep := sessionReport(f, limit)
	rep.Memory = held
	return rep, nil
}
