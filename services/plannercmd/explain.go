package plannercmd

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tail"
	"github.com/weir-dev/weir/streams"
)

func (o *options) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Say what a decision was made from, what else it could have been, and what came of it", Args: cobra.ExactArgs(1),
		Example: "  weir planner log --changes\n  weir planner explain 1764596512-7",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.explain(cmd, args[0]) },
	}
}

// report explains one decision.
type report struct {
	Plan    *schemas.Plan `json:"plan"`
	Changes []outcome     `json:"outcome,omitempty"`
	// After is the next decision about the pool.
	After *schemas.Plan `json:"after,omitempty"`
}

// outcome is what came of one role change.
type outcome struct {
	schemas.RoleChange
	Epoch uint64 `json:"epoch,omitempty"` // of its assignment, while that is the last one
	// Flip is the executor's own account, while it is its last role change.
	Flip *schemas.Flip `json:"flip,omitempty"`
	Said string        `json:"said"` // one sentence
}

func (o *options) explain(cmd *cobra.Command, id string) error {
	nc, js, err := o.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	r, err := o.readPlan(cmd.Context(), js, id)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return printJSON(cmd.OutOrStdout(), r)
	}
	return printPlan(cmd.OutOrStdout(), r)
}

func (o *options) readPlan(ctx context.Context, js jetstream.JetStream, id string) (*report, error) {
	r := &report{}
	err := tail.Since(ctx, js, streams.Plan, time.Time{}, func(m tail.Message) bool {
		var p schemas.Plan
		if schemas.Decode(m.Data, &p) != nil {
			return true
		}
		switch {
		case p.ID == id:
			r.Plan = &p
		case r.Plan != nil && p.Pool == r.Plan.Pool:
			r.After = &p
			return false
		}
		return true
	}, schemas.PlanSubject(o.cell))
	if err != nil {
		return nil, err
	}
	if r.Plan == nil {
		return nil, fmt.Errorf("there is no decision %q in cell %s; those that are kept: weir planner log -n 0", id, o.cell)
	}
	for _, c := range r.Plan.Changes {
		out, err := o.outcome(ctx, js, r.Plan, c)
		if err != nil {
			return nil, err
		}
		r.Changes = append(r.Changes, out)
	}
	return r, nil
}

// outcome reads what became of a role change.
func (o *options) outcome(ctx context.Context, js jetstream.JetStream, p *schemas.Plan, c schemas.RoleChange) (outcome, error) {
	out := outcome{RoleChange: c}
	var a *schemas.Assignment
	err := tail.Last(ctx, js, streams.Role, func(m tail.Message) bool {
		got := &schemas.Assignment{}
		if schemas.Decode(m.Data, got) == nil {
			a, out.Epoch = got, m.Seq
		}
		return true
	}, schemas.RoleSubject(o.cell, c.Executor))
	if err != nil {
		return out, err
	}
	var rep *schemas.Report
	err = tail.Last(ctx, js, streams.Report, func(m tail.Message) bool {
		got := &schemas.Report{}
		if schemas.Decode(m.Data, got) == nil {
			rep = got
		}
		return true
	}, schemas.ReportSubject(o.cell, c.Executor))
	if err != nil {
		return out, err
	}
	mine := a != nil && a.Plan == p.ID
	if !mine {
		out.Epoch = 0
	}
	if rep != nil && rep.Flip != nil && rep.Flip.Plan == p.ID {
		out.Flip = rep.Flip
	}
	out.Said = out.say(p, mine, a, rep)
	return out, nil
}

func (out *outcome) say(p *schemas.Plan, mine bool, a *schemas.Assignment, rep *schemas.Report) string {
	f := out.Flip
	switch {
	case p.Mode != schemas.ModeAct && !mine && f == nil:
		return "was not published: the planner was in mode " + string(p.Mode)
	case f != nil && f.Back != "":
		return "rolled back after " + ms(f.ReturnNS+f.HandNS+f.VerifyNS) + ": " + f.Back
	case f != nil:
		return fmt.Sprintf("in force %s after the assignment came: %s returning %d jobs, %s handing over %d (%d kept, %d finished before), %s verifying",
			ms(f.ReturnNS+f.HandNS+f.VerifyNS), ms(f.ReturnNS), f.Returned, ms(f.HandNS), f.Handed, f.Kept, f.Finished, ms(f.VerifyNS))
	case mine && rep != nil && rep.Epoch >= out.Epoch:
		return fmt.Sprintf("in force with epoch %d", out.Epoch)
	case mine && rep != nil && rep.Problem != "":
		return "not in force: " + rep.Problem
	case mine:
		return fmt.Sprintf("assigned with epoch %d, not reported in force yet", out.Epoch)
	case a != nil:
		return fmt.Sprintf("another assignment came later, by %s: %s", a.By, a.Role)
	}
	return "nothing is known of it any more"
}

func ms(ns int64) string { return fmt.Sprintf("%.0f ms", float64(ns)/1e6) }

// printPlan writes a decision for people.
func printPlan(w io.Writer, r *report) error {
	p, in := r.Plan, &r.Plan.Inputs
	fmt.Fprintf(w, "decision %s, %s%s, policy %s, mode %s\n", p.ID, time.Unix(0, p.AtNS).Format(time.DateTime), named(", pool ", clean(p.Pool, 80)), clean(p.Policy, 40), p.Mode)
	fmt.Fprintf(w, "rule %s: %s\n\n", clean(p.Rule, 40), clean(p.Reason, 400))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tPREFILL\tDECODE\t")
	fmt.Fprintf(t, "executors (of size 1)\t%g\t%g\t%d in all, size %g%s\n", in.Prefill, in.Decode, in.Executors, in.Size, mixed(in.Mixed))
	fmt.Fprintf(t, "work that arrives, s/s\t%.3f\t%.3f\t\n", in.DemandP, in.DemandD)
	fmt.Fprintf(t, "expected, s/s\t%.3f\t%.3f\t\n", in.ForecastP, in.ForecastD)
	fmt.Fprintf(t, "backlog, s\t%.1f\t%.1f\t\n", in.BacklogP, in.BacklogD)
	fmt.Fprintf(t, "busy\t%.0f %%\t%.0f %%\tKV memory %.0f %% full\n", in.BusyP*100, in.BusyD*100, in.KV*100)
	if err := t.Flush(); err != nil {
		return err
	}
	since := "no change yet"
	if in.SinceMS > 0 {
		since = fmt.Sprintf("last change %s before", (time.Duration(in.SinceMS) * time.Millisecond).Round(100*time.Millisecond))
	}
	fmt.Fprintf(w, "reports up to %d ms old, load %d ms old, %d changes under way, %s, a change costs %.0f ms%s\n", in.ReportMS, in.LoadMS, in.InFlight, since, in.CostMS,
		map[bool]string{false: "; too few samples"}[in.Confident])
	if len(p.Candidates) > 0 {
		if err := candidates(w, p); err != nil {
			return err
		}
	}
	if p.Mode == schemas.ModeAdvise {
		fmt.Fprintf(w, "\nacting on the advice so far would have brought %.1f worker seconds\n", p.Advised)
	}
	if len(r.Changes) == 0 {
		fmt.Fprintln(w, "\nroles stay")
	}
	for i := range r.Changes {
		c := &r.Changes[i]
		fmt.Fprintf(w, "\n%s: %s to %s%s%s\n  %s\n", clean(c.Executor, 80), c.From, c.To, named(", absorbs ", string(c.Absorb)), named(", because ", clean(c.Why, 200)), clean(c.Said, 400))
	}
	if a := r.After; a != nil {
		fmt.Fprintf(w, "\nnext %s, %s later: rule %s, split %s, %s\n", a.ID, time.Duration(a.AtNS-p.AtNS).Round(100*time.Millisecond), a.Rule, split(&a.Inputs), clean(a.Reason, 300))
	}
	return nil
}

func mixed(n float64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %g of it mixed", n)
}

// candidates lists the splits that were valued, the best first.
func candidates(w io.Writer, p *schemas.Plan) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SPLIT P:D\tFLIPS\tPREDICTED, WORKER S\tOF THAT COST\tHELD BACK BY\t")
	for _, c := range p.Candidates {
		mark := ""
		switch {
		case c.Flips == 0:
			mark = "as it is"
		case len(p.Changes) > 0 && c == p.Candidates[0]:
			mark = "chosen"
		}
		fmt.Fprintf(t, "%d:%d\t%d\t%.2f\t%.2f\t%s\t%s\n", c.Prefill, c.Decode, c.Flips, c.Value, c.Cost, clean(c.Why, 60), mark)
	}
	return t.Flush()
}
