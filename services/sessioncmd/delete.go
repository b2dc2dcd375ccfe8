package sessioncmd

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/services/erase"
	"github.com/weir-dev/weir/services/serve"
)

func deleteCommand(w *where) *cobra.Command {
	o := erase.Options{Wait: time.Minute}
	c := &cobra.Command{
		Use: "delete SESSION", Short: "Erase a session: messages, results, objects and KV blocks", Args: cobra.ExactArgs(1),
		Long: `Erase a session for good: its messages and results, large bodies and images that no
other session refers to, its blocks in KV memory, and what lineage remembers of it.
Bytes are overwritten, also in the files of NATS and in earlier snapshots.

Stop the agent first: turns that it publishes while this runs begin a new life of the
session and stay. Turns in work make the command fail, unless --wait cancels them.
The command may be repeated; it goes on where an earlier run was interrupted.`,
		Example: "  weir session delete s-1\n  weir session delete s-1 --tenant acme --wait -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.check(args[0]); err != nil {
				return err
			}
			if o.Wait <= 0 {
				return fmt.Errorf("%w: --timeout is %s, it must be positive", serve.ErrUsage, o.Wait)
			}
			nc, err := w.connect()
			if err != nil {
				return err
			}
			defer nc.Close()
			o.Conn, o.Cell = nc, w.cell
			r, err := erase.Session(cmd.Context(), o, w.tenant, args[0])
			if r != nil && w.output == "json" {
				err = errors.Join(err, printJSON(cmd.OutOrStdout(), r))
			} else if r != nil && err == nil {
				printReport(cmd.OutOrStdout(), r)
			}
			return err
		},
	}
	c.Flags().BoolVar(&o.Cancel, "wait", false, "cancel turns in work and wait for their ends, instead of failing")
	c.Flags().DurationVar(&o.Wait, "timeout", o.Wait, "how long to wait for turns to end, and for lineage to save its state")
	return c
}

// printReport is the form for people.
func printReport(out io.Writer, r *erase.Report) {
	if !r.Found {
		fmt.Fprintf(out, "session %s of tenant %s is not known; what was found of it is removed\n", r.Session, r.Tenant)
	} else {
		fmt.Fprintf(out, "session %s of tenant %s is erased\n", r.Session, r.Tenant)
	}
	names := make([]string, 0, len(r.Messages))
	for n := range r.Messages {
		names = append(names, n)
	}
	slices.Sort(names)
	if r.Cancelled > 0 {
		fmt.Fprintf(out, "%8d turns cancelled\n", r.Cancelled)
	}
	for _, n := range names {
		fmt.Fprintf(out, "%8d messages of %s\n", r.Messages[n], n)
	}
	fmt.Fprintf(out, "%8d objects of the payload bucket", r.Objects)
	if r.Kept > 0 {
		fmt.Fprintf(out, ", %d more are kept because other sessions refer to them", r.Kept)
	}
	fmt.Fprintf(out, "\n%8d KV blocks on %d nodes\n", r.Blocks, len(r.Nodes))
	for _, l := range r.Left {
		fmt.Fprintf(out, "left     %s\n", l)
	}
}
