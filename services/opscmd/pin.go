package opscmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/services/serve"
)

func (b *bus) pinCommand() *cobra.Command {
	o := setting{hear: hearFor}
	c := &cobra.Command{
		Use: "pin EXECUTOR [ROLE]", Short: "Hold an executor in its role, or in another, whatever the planner finds", Args: cobra.RangeArgs(1, 2),
		Example: "  weir roles pin d0\n  weir roles pin d0 prefill\n  weir roles release d0",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return b.setRole(cmd, args[0], args[1], o)
			}
			return b.repin(cmd, args[0], true)
		},
	}
	o.flags(c)
	return c
}

func (b *bus) releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "release EXECUTOR", Short: "Let the planner change an executor's role again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return b.repin(cmd, args[0], false) },
	}
}

// repin writes the assignment in force again, pinned or not.
func (b *bus) repin(cmd *cobra.Command, executor string, pinned bool) error {
	if err := schemas.CheckID("EXECUTOR", executor); err != nil {
		return fmt.Errorf("%w: %w", serve.ErrUsage, err)
	}
	nc, js, err := b.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	a, last, err := assign.Read(cmd.Context(), js, b.cell, executor)
	switch {
	case errors.Is(err, assign.ErrUnreadable):
		return fmt.Errorf("%w; it is not in force and holds back the planner, replace it with: weir roles set %s ROLE", err, executor)
	case err != nil:
		return err
	case a == nil:
		return fmt.Errorf("executor %q of cell %q has no role; those that have one: weir roles", executor, b.cell)
	}
	was := a.Pinned
	if was != pinned {
		a.Pinned, a.By, a.Plan, a.Reason = pinned, "weir roles", "", "pinned by hand"
		if !pinned {
			a.Reason = "released by hand"
		}
		if last, err = assign.Write(cmd.Context(), js, b.cell, executor, a, last); err != nil {
			return errors.Join(fmt.Errorf("nothing was changed; somebody else may have written at the same moment, look with: weir roles"), err)
		}
	}
	if b.output == "json" {
		return printJSON(cmd.OutOrStdout(), map[string]any{"executor": executor, "role": a.Role, "pinned": pinned, "epoch": last, "changed": was != pinned})
	}
	words := map[bool]string{true: "is pinned to", false: "is released; it goes on as"}[pinned]
	if was == pinned {
		words = map[bool]string{true: "was pinned already, to", false: "was not pinned; it goes on as"}[pinned]
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s, epoch %d\n", executor, words, a.Role, last)
	return nil
}
