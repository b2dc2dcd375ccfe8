package tracecmd

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/services/serve"
)

func scheduleCommand() *cobra.Command {
	var l loadFlags
	calls := false
	c := &cobra.Command{
		Use: "schedule TRACE", Short: "Draw which recorded session runs when", Args: cobra.ExactArgs(1),
		Long: `Draws a load from recorded sessions: so many run at any time, the first ones begin with
a random call within a minute, and when one ends the next takes its place 30 s later.
Waits between calls are cut at 60 s. What is written names sessions, first calls and
times, and nothing of the trace. With --with-calls it is the whole load instead.`,
		Example: "  weir trace schedule weka_cc_710.rle.jsonl.gz --half even --seed 1 > plan.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(l.seeds) != 1 {
				return fmt.Errorf("%w: --seed names %d seeds, a schedule has one", serve.ErrUsage, len(l.seeds))
			}
			if err := l.check(); err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			recs, skipped, err := workload.ReadWeka(args[0], f)
			if err != nil {
				return err
			}
			plans, err := l.plans(args[0], recs)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d sessions; left out: %d sub-agents, %d empty sessions; %d calls without a server time took %d s\n",
				len(recs), skipped.SubAgents, skipped.Empty, skipped.NoTook, workload.RecordedTook/1000)
			if !calls {
				return WritePlan(cmd.OutOrStdout(), plans[0])
			}
			s, err := plans[0].Schedule(recs)
			if err != nil {
				return err
			}
			return errors.Join(workload.Encode(cmd.OutOrStdout(), s))
		},
	}
	l.flags(c.Flags())
	c.Flags().BoolVar(&calls, "with-calls", false, "write every call, as JSON lines")
	return c
}
