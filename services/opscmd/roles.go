package opscmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/services/serve"
)

// Roles is `weir roles` with its sub-commands set, pin and release.
func Roles() *cobra.Command {
	b := &bus{}
	c := &cobra.Command{
		Use: "roles", Short: "See and set what executors do", Args: cobra.NoArgs,
		Long: "Lists the executors of the cell: size, role and epoch in force, and those assigned while they are others, what a decode\nexecutor may absorb, its work, its last role change, who assigned the role and whether it is held. What is wrong with\none stands below it. -o json has all of it; weir explain flip has the stages of a role change.",
		RunE: func(cmd *cobra.Command, _ []string) error { return b.listRoles(cmd) },
	}
	b.flags(c)
	o := setting{hear: hearFor}
	set := &cobra.Command{
		Use: "set EXECUTOR ROLE", Short: "Assign a role: prefill, decode, mixed or standby", Args: cobra.ExactArgs(2),
		Long: "Assigns a role and pins it. The executor finishes or hands over what it does, keeps its model and its KV blocks,\nand takes work of the new role, all without a restart.\n" +
			"A planner leaves a pinned executor alone until it is released.\n" +
			"An executor that is not heard gets no role, unless --force says so: a name with a slip would be kept for ever.",
		RunE: func(cmd *cobra.Command, args []string) error { return b.setRole(cmd, args[0], args[1], o) },
	}
	o.flags(set)
	c.AddCommand(set, b.pinCommand(), b.releaseCommand())
	return c
}

// setting is how a role is set.
type setting struct {
	hear  time.Duration // how long the executor is listened for first
	wait  time.Duration // how long to wait for the role to be in force, 0 for not at all
	force bool          // do not listen first
}

func (o *setting) flags(c *cobra.Command) {
	c.Flags().DurationVar(&o.wait, "wait", 15*time.Second, "how long to wait until the executor reports the new role; 0 does not wait")
	c.Flags().BoolVar(&o.force, "force", false, "assign the role even if the executor is not heard; it takes it when it starts")
}

// hearFor is four heartbeats: executors send one every 500 ms.
const hearFor = 2 * time.Second

func (b *bus) setRole(cmd *cobra.Command, executor, role string, o setting) error {
	a := &schemas.Assignment{Header: schemas.H(), Role: schemas.Role(role), Pinned: true, By: "weir roles", Reason: "set by hand"}
	if err := errors.Join(a.Check(), schemas.CheckID("EXECUTOR", executor)); err != nil {
		return fmt.Errorf("%w: %w", serve.ErrUsage, err)
	}
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx := cmd.Context()
	beats := make(chan *nats.Msg, 1024) // two seconds of a full cell
	sub, err := nc.ChanSubscribe(schemas.HBSubject(b.cell, "*"), beats)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if !o.force {
		if err := awaitAlive(ctx, beats, o.hear, b.cell, executor); err != nil {
			return err
		}
	}
	_, last, err := assign.Read(ctx, js, b.cell, executor)
	if err = assign.Unread(err); err != nil {
		return err
	}
	epoch, err := assign.Write(ctx, js, b.cell, executor, a, last)
	if err != nil {
		return fmt.Errorf("role not assigned: %w; somebody else may have written it at the same moment, look with: weir roles", err)
	}
	start := time.Now()
	if o.wait > 0 {
		if err := awaitEpoch(ctx, beats, epoch, o.wait, executor); err != nil {
			return err
		}
	}
	if b.output == "json" {
		return printJSON(cmd.OutOrStdout(), map[string]any{"executor": executor, "role": role, "pinned": true, "epoch": epoch, "ms": time.Since(start).Milliseconds()})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is %s, epoch %d, after %d ms; a planner leaves it alone until: weir roles release %s\n", executor, role, epoch, time.Since(start).Milliseconds(), executor)
	return nil
}

// awaitAlive waits for a heartbeat of an executor. The error names those that were
// heard instead.
func awaitAlive(ctx context.Context, beats <-chan *nats.Msg, wait time.Duration, cell, executor string) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	alive := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			others := "no executor of this cell is: is weir running, and is --cell right?"
			if len(alive) > 0 {
				others = "alive are: " + strings.Join(slices.Sorted(maps.Keys(alive)), ", ")
			}
			return fmt.Errorf("executor %q of cell %q was not heard within %s, so no role was assigned; %s; --force assigns it anyway", executor, cell, wait, others)
		case m := <-beats:
			var h schemas.Heartbeat
			switch {
			case schemas.Decode(m.Data, &h) != nil:
			case h.Dead: // a supervisor's word
				delete(alive, h.Executor)
			case h.Executor == executor:
				return nil
			default:
				alive[h.Executor] = true
			}
		}
	}
}

// awaitEpoch waits until the executor reports that the assignment is in force.
func awaitEpoch(ctx context.Context, beats <-chan *nats.Msg, epoch uint64, wait time.Duration, executor string) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	heard := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			if !heard {
				return fmt.Errorf("epoch %d is assigned, but executor %q was not heard within %s: is it running? see: weir roles", epoch, executor, wait)
			}
			return fmt.Errorf("epoch %d is assigned, but executor %q has not applied it within %s; it still drains", epoch, executor, wait)
		case m := <-beats:
			var h schemas.Heartbeat
			if schemas.Decode(m.Data, &h) != nil || h.Dead || h.Executor != executor {
				continue
			}
			heard = true
			if h.Epoch >= epoch {
				return nil
			}
		}
	}
}
