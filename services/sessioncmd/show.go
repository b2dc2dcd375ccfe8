package sessioncmd

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
)

func showCommand(w *where) *cobra.Command {
	return &cobra.Command{
		Use: "show SESSION", Short: "Print the branches and events of a session", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.check(args[0]); err != nil {
				return err
			}
			nc, err := w.connect()
			if err != nil {
				return err
			}
			defer nc.Close()
			r, err := w.ask(cmd.Context(), nc, args[0])
			if err != nil {
				return err
			}
			if r.Error != "" {
				return errors.New(r.Error)
			}
			if w.output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			if !r.Found {
				return fmt.Errorf("session %s of tenant %s is not known: no turn of it came, it was forgotten because it was idle for long, or it was erased", args[0], w.tenant)
			}
			return printSession(cmd.OutOrStdout(), args[0], r)
		},
	}
}

// printSession is the form for people.
func printSession(out io.Writer, session string, r *schemas.SessionReply) error {
	fmt.Fprintf(out, "session %s: %d branches, %d turns in work\n", session, len(r.Branches)+r.Left, r.Pending)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BRANCH\tFROM\tSTATE\tWHY\tTURNS\tMESSAGES\tTOKENS\tTOOL WAITS\tCHANGED")
	for _, b := range r.Branches {
		changed, state := "", string(b.State)
		if b.AtNS > 0 {
			changed = time.Unix(0, b.AtNS).Format(time.DateTime)
		}
		if b.Tool != "" {
			state += " for " + b.Tool
		}
		if b.Inferred {
			state += " (inferred)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", b.ID, b.Parent, state, b.Why, b.Turns, b.Messages, b.Tokens, b.ToolWaits, changed)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if r.Left > 0 {
		fmt.Fprintf(out, "and %d more branches\n", r.Left)
	}
	// An inferred event is counted as "inferred.<kind>" too.
	for _, k := range slices.Sorted(maps.Keys(r.Events)) {
		if strings.HasPrefix(k, "inferred.") {
			continue
		}
		note := ""
		if n := r.Events["inferred."+k]; n > 0 {
			note = fmt.Sprintf(", %d of them inferred", n)
		}
		fmt.Fprintf(out, "%6d  %s%s\n", r.Events[k], k, note)
	}
	return nil
}
