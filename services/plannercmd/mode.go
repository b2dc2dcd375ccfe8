package plannercmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/services/tail"
	"github.com/weir-dev/weir/streams"
)

func (o *options) modeCommand(name string, mode schemas.Mode, short string) *cobra.Command {
	by, reason := os.Getenv("USER"), ""
	if by == "" {
		by = "weir planner"
	}
	c := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		Long: short + ".\nWhat is said here stays in force over restarts, whatever --planner says.",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.setMode(cmd, mode, by, reason) },
	}
	c.Flags().StringVar(&by, "by", by, "who says so")
	c.Flags().StringVar(&reason, "reason", "", "why, for those who find it so")
	return c
}

func (o *options) setMode(cmd *cobra.Command, mode schemas.Mode, by, reason string) error {
	nc, js, err := o.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx := cmd.Context()
	was, seq, err := assign.ReadMode(ctx, js, o.cell)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("stream %s does not exist: no weir has run on this NATS", streams.Role)
	}
	if err = assign.Unread(err); err != nil {
		return err
	}
	m := &schemas.PlannerMode{Header: schemas.H(), Mode: mode, By: by, Reason: reason, AtNS: time.Now().UnixNano()}
	if err := assign.WriteMode(ctx, js, o.cell, m, seq); err != nil {
		return fmt.Errorf("the mode was not changed: %w; somebody else may have done it at the same moment, look with: weir planner", err)
	}
	if o.output == "json" {
		return printJSON(cmd.OutOrStdout(), m)
	}
	before := "as the planner was started"
	if was != nil {
		before = fmt.Sprintf("%s, by %s", was.Mode, clean(was.By, 60))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the planner of cell %s is told: %s (before: %s)\n", o.cell, mode, before)
	return nil
}

// state is what `weir planner` shows.
type state struct {
	Cell   string       `json:"cell"`
	Active string       `json:"active,omitempty"` // who holds the lease
	Mode   schemas.Mode `json:"mode,omitempty"`   // of the last decision
	// Set is the mode that people set; null when nobody did.
	Set  *schemas.PlannerMode `json:"set,omitempty"`
	Bad  string               `json:"bad,omitempty"` // why the last message of people about the mode is not in force
	Last *schemas.Plan        `json:"last,omitempty"`
}

func (o *options) status(cmd *cobra.Command) error {
	nc, js, err := o.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	s, err := o.read(cmd.Context(), js)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if o.output == "json" {
		return printJSON(w, s)
	}
	now := time.Now()
	switch {
	case s.Active != "":
		fmt.Fprintf(w, "planner   active: %s\n", s.Active)
	default:
		fmt.Fprintf(w, "planner   none is active in cell %s\n", o.cell)
	}
	switch {
	case s.Bad != "":
		fmt.Fprintf(w, "mode      as it was before: %s; replace it with weir planner resume, pause or advise\n", clean(s.Bad, 300))
	case s.Set != nil:
		fmt.Fprintf(w, "mode      %s, set by %s %s%s\n", s.Set.Mode, clean(s.Set.By, 60), ago(now, s.Set.AtNS), named(": ", clean(s.Set.Reason, 200)))
	case s.Last != nil:
		fmt.Fprintf(w, "mode      %s, as it was started\n", s.Last.Mode)
	}
	if p := s.Last; p != nil {
		fmt.Fprintf(w, "decided   %s %s by rule %s: %s\n", p.ID, ago(now, p.AtNS), p.Rule, clean(p.Reason, 300))
		fmt.Fprintf(w, "changes   %s\n", changes(p, 10))
	}
	return nil
}

func (o *options) read(ctx context.Context, js jetstream.JetStream) (*state, error) {
	s := &state{Cell: o.cell}
	err := tail.Last(ctx, js, streams.Lease, func(m tail.Message) bool {
		var l schemas.Lease
		// A lease lives for a few seconds; it is renewed three times in each.
		if schemas.Decode(m.Data, &l) == nil && time.Since(time.Unix(0, l.AtNS)) < 2*streams.LeaseTTL {
			s.Active = l.Holder
		}
		return true
	}, schemas.LeaseSubject(o.cell, "planner"))
	if err != nil {
		return nil, err
	}
	err = tail.Last(ctx, js, streams.Plan, func(m tail.Message) bool {
		var p schemas.Plan
		if schemas.Decode(m.Data, &p) == nil {
			s.Last, s.Mode = &p, p.Mode
		}
		return true
	}, schemas.PlanSubject(o.cell))
	if err != nil {
		return nil, err
	}
	s.Set, _, err = assign.ReadMode(ctx, js, o.cell)
	if errors.Is(err, assign.ErrUnreadable) {
		s.Bad, err = err.Error(), nil
	}
	return s, err
}

func named(before, v string) string {
	if v == "" {
		return ""
	}
	return before + v
}
