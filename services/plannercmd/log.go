package plannercmd

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/serve"
	"github.com/weir-dev/weir/services/tail"
	"github.com/weir-dev/weir/streams"
)

// logOptions choose decisions.
type logOptions struct {
	since   time.Duration
	most    int
	follow  bool
	changes bool
	pool    string
}

func (o *options) logCommand() *cobra.Command {
	l := logOptions{most: 30}
	c := &cobra.Command{
		Use: "log", Short: "List decisions, the newest last", Args: cobra.NoArgs,
		Long: "Lists the planner's decisions: when, by which rule, what changed and why. One is written when\n" +
			"something changes, when the rule that holds the planner back changes, and once a minute.",
		Example: "  weir planner log --since 1h\n  weir planner log --changes -o json\n  weir planner log --follow",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.log(cmd, l) },
	}
	f := c.Flags()
	f.DurationVar(&l.since, "since", 0, "only decisions that are not older than this; 0 is all that are kept")
	f.IntVarP(&l.most, "limit", "n", l.most, "the newest so many; 0 is all")
	f.BoolVarP(&l.follow, "follow", "f", false, "go on with new ones until Ctrl-C")
	f.BoolVar(&l.changes, "changes", false, "only decisions that change a role, or would")
	f.StringVar(&l.pool, "pool", "", "only decisions about this pool")
	return c
}

func (l *logOptions) wants(p *schemas.Plan) bool {
	return (l.pool == "" || p.Pool == l.pool) && (!l.changes || len(p.Changes) > 0)
}

func (o *options) log(cmd *cobra.Command, l logOptions) error {
	if l.most < 0 || l.since < 0 {
		return fmt.Errorf("%w: --limit and --since must not be negative", serve.ErrUsage)
	}
	nc, js, err := o.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, now := cmd.Context(), time.Now()
	from := time.Time{}
	if l.since > 0 {
		from = now.Add(-l.since)
	}
	var plans []schemas.Plan
	bad, last := 0, uint64(0)
	err = tail.Since(ctx, js, streams.Plan, from, func(m tail.Message) bool {
		var p schemas.Plan
		last = m.Seq
		switch {
		case schemas.Decode(m.Data, &p) != nil:
			bad++
		case l.wants(&p):
			if plans = append(plans, p); l.most > 0 && len(plans) > 2*l.most {
				plans = append(plans[:0], plans[len(plans)-l.most:]...)
			}
		}
		return true
	}, schemas.PlanSubject(o.cell))
	if err != nil {
		return err
	}
	if l.most > 0 {
		plans = plans[max(0, len(plans)-l.most):]
	}
	out := cmd.OutOrStdout()
	if err := o.printLog(out, plans, true); err != nil {
		return err
	}
	if bad > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d decisions are of another version and are not shown\n", bad)
	}
	if !l.follow {
		if len(plans) == 0 && o.output == "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "no decision; is a planner active? see: weir planner")
		}
		return nil
	}
	return tail.Follow(ctx, js, streams.Plan, now.Add(-time.Second), func(m tail.Message) bool {
		var p schemas.Plan
		if m.Seq <= last || schemas.Decode(m.Data, &p) != nil || !l.wants(&p) {
			return true
		}
		err = o.printLog(out, []schemas.Plan{p}, false)
		return err == nil
	}, schemas.PlanSubject(o.cell))
}

// printLog writes decisions as a table or as JSON lines.
func (o *options) printLog(w io.Writer, plans []schemas.Plan, head bool) error {
	if o.output == "json" {
		for i := range plans {
			if err := printJSON(w, &plans[i]); err != nil {
				return err
			}
		}
		return nil
	}
	// Follow prints line by line, so columns have fixed widths there.
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if head {
		fmt.Fprintln(t, "TIME\tID\tMODE\tSPLIT P:D\tRULE\tCHANGES\tREASON")
	}
	for i := range plans {
		p := &plans[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", time.Unix(0, p.AtNS).Format(time.DateTime), p.ID, p.Mode, split(&p.Inputs), p.Rule, changes(p, 3), clean(p.Reason, 160))
	}
	return t.Flush()
}

// split is the split of a decision's inputs, in executors of size 1.
func split(in *schemas.PlanInput) string {
	s := fmt.Sprintf("%g:%g", in.Prefill, in.Decode)
	if in.Mixed > 0 {
		s += fmt.Sprintf("+%g", in.Mixed)
	}
	return s
}

// changes lists up to n role changes.
func changes(p *schemas.Plan, n int) string {
	var b []string
	for i, c := range p.Changes {
		if i == n {
			b = append(b, fmt.Sprintf("and %d more", len(p.Changes)-n))
			break
		}
		s := fmt.Sprintf("%s %s>%s", c.Executor, c.From, c.To)
		if c.From == c.To {
			s = fmt.Sprintf("%s %s, absorbs %s", c.Executor, c.To, orS(c.Absorb))
		}
		b = append(b, s)
	}
	if len(b) == 0 {
		return "-"
	}
	return strings.Join(b, ", ")
}

func orS(c schemas.SizeClass) schemas.SizeClass {
	if c == "" {
		return schemas.SizeS
	}
	return c
}

// clean makes text safe for a terminal and cuts it.
func clean(s string, most int) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == utf8.RuneError {
			return ' '
		}
		return c
	}, s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
