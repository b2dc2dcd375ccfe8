package evict

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/weir-dev/weir/kvtier/replay"
	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/schemas"
)

// signal is something that agents say, which an ablation leaves out.
type signal struct {
	name string
	mode replay.Mode
	mute func(*workload.Schedule) *workload.Schedule
	log  func(*replay.Log) // changes what the tier hears instead
}

// without leaves out events of those kinds.
func without(drop ...schemas.EventKind) func(*workload.Schedule) *workload.Schedule {
	return func(s *workload.Schedule) *workload.Schedule {
		return workload.Mute(s, func(y workload.Say) (workload.Say, bool) {
			return y, !slices.Contains(drop, schemas.EventKind(y.Kind))
		})
	}
}

// signals are what the ablation leaves out, one at a time. What is not said is still
// inferred where that is possible.
func signals() []signal {
	return []signal{
		{name: "nothing"},
		{name: "compactions", mute: without(schemas.EventCompacted)},
		{name: "ends of branches", mute: without(schemas.EventBranchEnd)},
		{name: "ends of sessions", mute: without(schemas.EventSessionEnd)},
		{name: "all ends and compactions", mute: without(schemas.EventCompacted, schemas.EventBranchEnd, schemas.EventSessionEnd)},
		{name: "expected times", mute: func(s *workload.Schedule) *workload.Schedule {
			return workload.Mute(s, func(y workload.Say) (workload.Say, bool) {
				y.Expect = 0
				return y, true
			})
		}},
		{name: "classes of tools", mute: oneTool},
		{name: "classes of tools, expected times", mute: func(s *workload.Schedule) *workload.Schedule {
			return workload.Mute(oneTool(s), func(y workload.Say) (workload.Say, bool) {
				y.Expect = 0
				return y, true
			})
		}},
		{name: "tool or user", mute: allUsers},
		{name: "dropped reasoning", log: keepReasoning},
		{name: "all events", mute: without(
			schemas.EventToolWait, schemas.EventUserWait, schemas.EventBranchFork, schemas.EventBranchEnd,
			schemas.EventCompacted, schemas.EventPrefixRewrite, schemas.EventSessionEnd,
		)},
		{name: "all events and names of branches", mode: replay.Inferred},
	}
}

// oneTool gives all tools one name.
func oneTool(s *workload.Schedule) *workload.Schedule {
	out := workload.Mute(s, func(y workload.Say) (workload.Say, bool) {
		if y.Tool != "" {
			y.Tool = "tool"
		}
		return y, true
	})
	for i := range out.Calls {
		if out.Calls[i].Tool != "" {
			out.Calls[i].Tool = "tool"
		}
	}
	return out
}

// allUsers makes every wait one for the user.
func allUsers(s *workload.Schedule) *workload.Schedule {
	out := workload.Mute(s, func(y workload.Say) (workload.Say, bool) {
		if y.Kind == string(schemas.EventToolWait) {
			y = workload.Say{Kind: string(schemas.EventUserWait), After: y.After, Line: y.Line}
		}
		return y, true
	})
	for i := range out.Calls {
		out.Calls[i].Finish, out.Calls[i].Tool = workload.FinishStop, ""
	}
	return out
}

// keepReasoning hides from the tier which blocks the next prompt leaves out.
func keepReasoning(l *replay.Log) {
	for i, o := range l.Ops {
		if o.Branch != nil && o.Branch.Keep > 0 {
			b := *o.Branch
			b.Keep = 0
			l.Ops[i].Branch = &b
		}
	}
}

// Ablated is what is left without one signal.
type Ablated struct {
	Without   string  `json:"without"`
	Capacity  int64   `json:"capacity"` // tokens
	HitRate   float64 `json:"hit_rate"`
	GapClosed float64 `json:"gap_closed"`
}

// Ablation measures at each capacity which share of the gap between LRU and Belady is
// closed without each signal, on the first seed. The first row leaves nothing out.
func Ablation(ctx context.Context, o Options) ([]Ablated, error) {
	o = o.filled(3e6)
	s, err := o.schedule(o.Seeds[0])
	if err != nil {
		return nil, err
	}
	all := signals()
	rows := make([][]*replay.Result, len(all))
	base := make([][]*replay.Result, 1)
	err = each(ctx, len(all), func(i int) error {
		x, schedule, mode := all[i], s, replay.Explicit
		if x.mute != nil {
			schedule = x.mute(s)
		}
		if x.mode != "" {
			mode = x.mode
		}
		l, err := replay.Record(schedule, mode)
		if err != nil {
			return fmt.Errorf("without %s: %w", x.name, err)
		}
		if x.log != nil {
			x.log(l)
		}
		for _, c := range o.Capacities {
			policies := []replay.Policy{replay.Weir}
			if i == 0 {
				policies = append(policies, replay.LRU, replay.Belady)
			}
			for k, p := range policies {
				r, err := replay.Run(l, p, c)
				if err != nil {
					return err
				}
				if k == 0 {
					rows[i] = append(rows[i], r)
				} else {
					base[0] = append(base[0], r)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	replay.Compare(slices.Concat(base[0], slices.Concat(rows...)))
	var out []Ablated
	for i := range rows {
		for _, r := range rows[i] {
			out = append(out, Ablated{all[i].name, r.Capacity, r.HitRate, gapOf(r)})
		}
	}
	return out, nil
}

// WriteAblation prints the table of an ablation, a column per capacity.
func WriteAblation(w io.Writer, rows []Ablated) error {
	var names, columns []string
	cell := map[[2]string]float64{}
	for _, r := range rows {
		c := millions(r.Capacity)
		if !slices.Contains(names, r.Without) {
			names = append(names, r.Without)
		}
		if !slices.Contains(columns, c) {
			columns = append(columns, c)
		}
		cell[[2]string{r.Without, c}] = r.GapClosed
	}
	text := fmt.Sprintf("%-34s", "share of the gap closed, without")
	for _, c := range columns {
		text += fmt.Sprintf("%8s", c)
	}
	for _, n := range names {
		text += fmt.Sprintf("\n%-34s", n)
		for _, c := range columns {
			text += fmt.Sprintf("%8.2f", cell[[2]string{n, c}])
		}
	}
	_, err := io.WriteString(w, text+"\n")
	return err
}
