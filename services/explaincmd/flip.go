package explaincmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/tail"
	"github.com/weir-dev/weir/streams"
)

func (o *options) flipCommand() *cobra.Command {
	return &cobra.Command{
		Use: "flip ID|EXECUTOR", Short: "A role change: which decision asked for it, its stages, and the turns that were paused", Args: cobra.ExactArgs(1),
		Long: "ID is that of a decision (see: weir planner log) or the epoch of an assignment (see: weir roles).\n" +
			"Executors report their last role change; those before it are not kept.",
		Example: "  weir explain flip d0\n  weir explain flip 1764596512-7",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.flip(cmd, args[0]) },
	}
}

func (o *options) flip(cmd *cobra.Command, id string) error {
	s, end, err := o.source([2]string{"ID", id})
	if err != nil {
		return err
	}
	defer end()
	reps, err := s.Flips(cmd.Context(), id)
	if err != nil {
		return err
	}
	for i := range reps {
		if o.output == "json" {
			err = json.NewEncoder(cmd.OutOrStdout()).Encode(&reps[i])
		} else {
			if i > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			err = printFlip(cmd.OutOrStdout(), &reps[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// FlipReport explains one role change; -o json prints it.
type FlipReport struct {
	Executor string       `json:"executor"`
	Flip     schemas.Flip `json:"flip"`
	At       string       `json:"at"` // RFC 3339, UTC: the assignment arrived
	TotalMS  float64      `json:"total_ms"`
	// Stages in milliseconds since then: return, hand_over, verify.
	Stages []Stage `json:"stages"`
	// By and Reason are the assignment's, while it is the last one; Rule that of the
	// decision that asked for it, while it is kept.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Why    string `json:"why,omitempty"` // why this executor
	// Turns that decoded here and went on elsewhere, by their results.
	Turns []PausedTurn `json:"turns,omitempty"`
	Notes []string     `json:"notes,omitempty"`
}

// PausedTurn is a turn whose decode was handed over.
type PausedTurn struct {
	Session string  `json:"session"`
	Turn    string  `json:"turn"`
	To      string  `json:"to"`       // the executor that went on
	PauseMS float64 `json:"pause_ms"` // without a token
}

// Bounds of the search for paused turns.
const (
	flipResults = 20_000
	flipSlack   = 2 * time.Second // of clocks of two hosts
)

// Flips explains the role changes that an executor, a decision or an epoch names.
func (s *Source) Flips(ctx context.Context, id string) ([]FlipReport, error) {
	epoch, _ := strconv.ParseUint(id, 10, 64) // 0 for what is no number: no epoch is 0
	var out []FlipReport
	heard := false
	err := tail.Last(ctx, s.js, streams.Report, func(m tail.Message) bool {
		var r schemas.Report
		if schemas.Decode(m.Data, &r) != nil {
			return true
		}
		heard = heard || r.Executor == id
		if f := r.Flip; f != nil && (r.Executor == id || f.Plan == id && id != "" || f.Epoch == epoch && epoch > 0) {
			out = append(out, newFlip(r.Executor, f))
		}
		return true
	}, schemas.ReportSubject(s.cell, "*"))
	if err != nil {
		return nil, err
	}
	switch {
	case len(out) == 0 && heard:
		return nil, fmt.Errorf("executor %s reports no role change since its process started", id)
	case len(out) == 0:
		return nil, fmt.Errorf("no executor of cell %s is called %q, and none reports a role change of that decision or epoch as its last one; see: weir roles, weir planner explain %s", s.cell, id, id)
	}
	slices.SortFunc(out, func(a, b FlipReport) int { return cmp.Compare(a.Executor, b.Executor) })
	for i := range out {
		if err := s.cause(ctx, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, s.paused(ctx, out)
}

func newFlip(executor string, f *schemas.Flip) FlipReport {
	r := FlipReport{Executor: executor, Flip: *f, At: at(f.AtNS), TotalMS: milli(f.ReturnNS + f.HandNS + f.VerifyNS)}
	from := int64(0)
	for _, st := range [...]struct {
		name string
		ns   int64
	}{{"return", f.ReturnNS}, {"hand_over", f.HandNS}, {"verify", f.VerifyNS}} {
		r.Stages = append(r.Stages, Stage{Stage: st.name, On: executor, FromMS: milli(from), ToMS: milli(from + st.ns)})
		from += st.ns
	}
	return r
}

// cause finds who asked for a role change and why.
func (s *Source) cause(ctx context.Context, r *FlipReport) error {
	err := tail.Last(ctx, s.js, streams.Role, func(m tail.Message) bool {
		var a schemas.Assignment
		if schemas.Decode(m.Data, &a) == nil && m.Seq == r.Flip.Epoch {
			r.By, r.Reason = a.By, a.Reason
		}
		return true
	}, schemas.RoleSubject(s.cell, r.Executor))
	if err != nil {
		return err
	}
	if r.Flip.Plan == "" {
		if r.By == "" {
			r.Notes = append(r.Notes, "its assignment has been replaced since, and no decision of a planner asked for it: it was set by hand or at the start")
		}
		return nil
	}
	found := false
	from := time.Unix(0, r.Flip.AtNS).Add(-time.Minute)
	err = tail.Since(ctx, s.js, streams.Plan, from, func(m tail.Message) bool {
		var p schemas.Plan
		if schemas.Decode(m.Data, &p) != nil || p.ID != r.Flip.Plan {
			return true
		}
		found, r.Rule, r.Reason = true, p.Rule, p.Reason
		for _, c := range p.Changes {
			if c.Executor == r.Executor {
				r.Why = c.Why
			}
		}
		return false
	}, schemas.PlanSubject(s.cell))
	if !found {
		r.Notes = append(r.Notes, fmt.Sprintf("decision %s is not kept any more", r.Flip.Plan))
	}
	return err
}

// paused looks for the turns that were handed over, in the results since the first of
// the role changes.
func (s *Source) paused(ctx context.Context, reps []FlipReport) error {
	first := reps[0].Flip.AtNS
	handed := false
	for i := range reps {
		first, handed = min(first, reps[i].Flip.AtNS), handed || reps[i].Flip.Handed > 0
	}
	if !handed {
		return nil
	}
	n := 0
	err := tail.Since(ctx, s.js, streams.Result, time.Unix(0, first), func(m tail.Message) bool {
		var r schemas.Result
		if n++; n > flipResults {
			return false
		}
		if schemas.Decode(m.Data, &r) == nil {
			for i := range reps {
				reps[i].pausedBy(&r)
			}
		}
		return true
	}, schemas.ResultSubject(s.tenant, "*", "*"))
	for i := range reps {
		r := &reps[i]
		slices.SortFunc(r.Turns, func(a, b PausedTurn) int { return cmp.Compare(b.PauseMS, a.PauseMS) })
		if n > flipResults {
			r.Notes = append(r.Notes, fmt.Sprintf("only the first %d results after it were read", flipResults))
		}
		if miss := r.Flip.Handed - len(r.Turns); miss > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%s handed over without a decode pause that a result of tenant %s shows: prefills, turns still in work, or results that are gone", many(miss, "job was", "jobs were"), s.tenant))
		}
	}
	return err
}

// pausedBy adds a turn if its decode left this executor in the role change.
func (r *FlipReport) pausedBy(res *schemas.Result) {
	from := r.Flip.AtNS - int64(flipSlack)
	to := r.Flip.AtNS + r.Flip.ReturnNS + r.Flip.HandNS + r.Flip.VerifyNS + int64(flipSlack)
	base := res.Timing.AdmittedNS
	for i, s := range res.Timing.Spans {
		if s.Stage != schemas.SpanDecode || s.On != r.Executor || base+s.To < from || base+s.To > to {
			continue
		}
		for _, next := range res.Timing.Spans[i+1:] {
			if next.Stage == schemas.SpanDecode {
				r.Turns = append(r.Turns, PausedTurn{Session: res.Session, Turn: res.Turn, To: next.On, PauseMS: milli(max(0, next.From-s.To))})
				return
			}
		}
	}
}

// maxPaused bounds the turns that a terminal is shown, the longest pauses first.
const maxPaused = 20

func printFlip(w io.Writer, r *FlipReport) error {
	p, f := &page{w: w}, &r.Flip
	p.line("%s became %s at %s, before it was %s; epoch %d", clean(r.Executor, 80), f.To, r.At, f.From, f.Epoch)
	if f.Back != "" {
		p.line("rolled back: %s", clean(f.Back, 300))
	}
	asked := ""
	if f.Plan != "" {
		asked = "decision " + clean(f.Plan, 80) + named(", rule ", clean(r.Rule, 40))
	} else if r.By != "" {
		asked = clean(r.By, 80)
	}
	if asked != "" {
		p.line("asked by   %s%s", asked, named(": ", clean(r.Reason, 400)))
	}
	if r.Why != "" {
		p.line("because    %s", clean(r.Why, 300))
	}
	p.line("")
	waterfall(p, &TurnReport{TotalMS: r.TotalMS, Stages: r.Stages})
	p.line("")
	p.line("in all     %s: %d returned that had not begun, %d handed over, %d kept, %d finished first", span(r.TotalMS), f.Returned, f.Handed, f.Kept, f.Finished)
	for i, t := range r.Turns {
		if i == maxPaused {
			p.line("           and %d more", len(r.Turns)-maxPaused)
			break
		}
		p.line("paused     %s for turn %s of session %s, which went on with %s", span(t.PauseMS), clean(t.Turn, 64), clean(t.Session, 64), clean(t.To, 64))
	}
	notes(p, r.Notes)
	return p.err
}
