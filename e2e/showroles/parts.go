package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/weir-dev/weir/e2e/agree"
	"github.com/weir-dev/weir/e2e/decide"
	"github.com/weir-dev/weir/e2e/flips"
	"github.com/weir-dev/weir/e2e/quarantine"
	"github.com/weir-dev/weir/e2e/replay"
	"github.com/weir-dev/weir/e2e/routecost"
	"github.com/weir-dev/weir/e2e/scenarios"
	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/services/control"
	"github.com/weir-dev/weir/services/record"
)

// parts are all runs, in order. What measures time on a live stack comes first and
// alone; simulated runs use all cores at the end, and their figures are the same on any
// machine.
func parts() []show.Part {
	return []show.Part{
		show.New("decide", []string{"planner.tick_ms.256", "router.decision_us_p99"}, decidePart),
		show.New("flips", []string{
			"flip.count", "flip.lost_turns", "flip.changed_tokens", "flip.blocks_lost", "flip.hit_rate_before", "flip.hit_rate_after",
			"flip.ms_p50", "flip.ms_p95", "flip.pause_ms_p95",
		}, flipsPart),
		show.New("flipkill", []string{"flipkill.lost_turns", "flipkill.stale_applied", "flipkill.phase_missing"}, killsPart),
		show.New("quarantine", []string{"nvml.quarantine_s"}, quarantinePart),
		show.New("live", []string{"live_virtual.agreement", "replay.identical"}, livePart),
		show.New("scenarios", scenarioNames(), scenariosPart),
	}
}

// bound is a figure with its bar.
type bound struct {
	show.Figure
	Bar  string `json:"bar"`
	Goal string `json:"goal,omitempty"`
	Met  bool   `json:"met"`
	Note string `json:"note,omitempty"`
}

// atMost prints a figure that must not be above bar. must: the command fails if it is.
func atMost(out *show.Printer, name string, value float64, unit string, bar float64, must bool, note string) error {
	return judge(out, bound{Figure: show.Figure{Name: name, Value: value, Unit: unit}, Bar: fmt.Sprintf("at most %g", bar), Met: value <= bar, Note: note}, must)
}

func judge(out *show.Printer, b bound, must bool) error {
	out.Detail(b.Name, b)
	if must && !b.Met {
		return fmt.Errorf("%s is %g, its bar is %s", b.Name, b.Value, b.Bar)
	}
	return nil
}

func decidePart(ctx context.Context, out *show.Printer) error {
	size := decide.Full()
	p, changes, err := decide.Planner(size)
	if err != nil {
		return err
	}
	err = atMost(out, "planner.tick_ms.256", ms(p.P99.Seconds()), "ms, p99", 10, false, fmt.Sprintf(
		"%d cells of %d executors in one process: %d decisions, %d role changes, p50 %.2f ms, max %.1f ms", size.Cells, size.Executors, p.N, changes, ms(p.P50.Seconds()), ms(p.Max.Seconds())))
	r, rerr := routecost.Measure(ctx)
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	return errors.Join(err, atMost(out, "router.decision_us_p99", 1e3*ms(r.P99.Seconds()), "µs", 200, false, fmt.Sprintf(
		"%d cells of %d executors and %d waiting turns in one process: %d messages, p50 %.1f µs, max %.0f µs",
		routecost.Cells, routecost.Executors, routecost.Waiting, r.Messages, 1e3*ms(r.P50.Seconds()), 1e3*ms(r.Max.Seconds()))))
}

func ms(seconds float64) float64 { return math.Round(seconds*1e6) / 1e3 }

// engine is llama.cpp where it is installed.
func engine() string {
	if stack.Libraries() == "" {
		return "go"
	}
	return "llama"
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// flipCount is how many role changes the figures are over.
const flipCount = 100

func flipsPart(ctx context.Context, out *show.Printer) error {
	f, err := flips.Run(ctx, flips.Options{Engine: engine(), Seed: 1, Flips: flipCount, Log: progress})
	if err != nil {
		return err
	}
	note := fmt.Sprintf("engine %s, 4 executors, %d turns", engine(), f.Turns)
	count := bound{Figure: show.Figure{Name: "flip.count", Value: float64(f.Flips), Unit: "role changes"}, Bar: fmt.Sprint("at least ", flipCount), Met: f.Flips >= flipCount, Note: note}
	err = errors.Join(
		judge(out, count, true),
		atMost(out, "flip.lost_turns", float64(f.LostTurns), "turns", 0, true, note),
		atMost(out, "flip.changed_tokens", float64(f.ChangedTokens), "tokens", 0, true, note),
		atMost(out, "flip.blocks_lost", float64(f.BlocksLost), "blocks", 0, true, note),
	)
	out.Figure("flip.hit_rate_before", f.HitBefore, "share of prompt tokens that were computed before")
	after := bound{
		Figure: show.Figure{Name: "flip.hit_rate_after", Value: f.HitAfter, Unit: "share of prompt tokens that were computed before"},
		Bar:    "within 0.01 of before", Met: math.Abs(f.HitAfter-f.HitBefore) <= 0.01,
	}
	p95 := bound{Figure: show.Figure{Name: "flip.ms_p95", Value: flips.P(f.Ms, 0.95), Unit: "ms"}, Bar: "below 1000", Goal: "below 500", Met: flips.P(f.Ms, 0.95) < 1000}
	p95.Note = fmt.Sprintf("by stage, p50 and p95 in ms: return %.0f %.0f, hand-over %.0f %.0f, verify %.0f %.0f", flips.P(f.ReturnMs, 0.5), flips.P(f.ReturnMs, 0.95),
		flips.P(f.HandMs, 0.5), flips.P(f.HandMs, 0.95), flips.P(f.VerifyMs, 0.5), flips.P(f.VerifyMs, 0.95))
	pause := bound{
		Figure: show.Figure{Name: "flip.pause_ms_p95", Value: flips.P(f.PauseMs, 0.95), Unit: "ms"}, Bar: "below 250", Met: flips.P(f.PauseMs, 0.95) < 250,
		Note: fmt.Sprintf("%d streams that were handed over", len(f.PauseMs)),
	}
	out.Figure("flip.ms_p50", flips.P(f.Ms, 0.5), "ms")
	return errors.Join(err, judge(out, after, true), judge(out, p95, false), judge(out, pause, false), problems(f))
}

// problems are what a run noticed beside its figures.
func problems(f *flips.Figures) error {
	var errs []error
	for _, p := range f.Problems {
		errs = append(errs, errors.New(p))
	}
	return errors.Join(errs...)
}

func killsPart(ctx context.Context, out *show.Printer) error {
	f, err := flips.RunKills(ctx, flips.Options{Engine: engine(), Seed: 1, Log: progress}, flips.Faults{Control: 2, Planner: 2, Executor: 2, Leader: 1, Stopped: 2, Last: 1})
	if err != nil {
		return err
	}
	note := fmt.Sprintf("control, planner, executors and a NATS leader of 3 killed, executors stopped, in the midst of %d changes, while the planner acts and nobody is pinned; %d turns", f.Flips, f.Turns)
	return errors.Join(
		atMost(out, "flipkill.lost_turns", float64(f.LostTurns), "turns", 0, true, note),
		atMost(out, "flipkill.stale_applied", float64(f.Stale), "assignments", 0, true, note),
		atMost(out, "flipkill.phase_missing", float64(f.Missing), "looks", 0, true, fmt.Sprintf("of %d looks at the roles", f.Samples)),
		problems(f),
	)
}

func quarantinePart(ctx context.Context, out *show.Printer) error {
	f, err := quarantine.Run(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		atMost(out, "nvml.quarantine_s", f.QuarantineS, "s", 10, true, fmt.Sprintf("released after %.1f s; %d turns meanwhile, none failed", f.ReleaseS, f.Turns)),
		both(f.Phases),
	)
}

func both(phases bool) error {
	if !phases {
		return errors.New("the cell was without a phase while an executor was out of work")
	}
	return nil
}

// speed of the live simulated engines: real time, which every machine's bus allows.
const speed = 1

// livePart plays the shift live and simulated, records the live planner and router, and
// replays the recording.
func livePart(ctx context.Context, out *show.Printer) (err error) {
	dir, err := os.MkdirTemp("", "weir-record-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	outcomes, err := agree.Run(ctx, agree.Options{Size: agree.Full(), Speed: speed, WindowS: agree.Window, Record: dir}, func(o *agree.Outcome) {
		out.Line(o)
		if o.Policy == agree.Weir {
			out.Detail("live_virtual.agreement", bound{
				Figure: show.Figure{Name: "live_virtual.agreement", Value: o.Share, Unit: "share of role changes"}, Bar: "reported", Met: true, Note: o.String(),
			})
		}
	})
	if err != nil {
		return err
	}
	if n := len(outcomes[1].Real.Changes); n > 0 {
		err = fmt.Errorf("a static split changed %d roles", n)
	}
	return errors.Join(err, replayed(ctx, out, filepath.Join(dir, string(agree.Weir))))
}

// replayed replays what the live run recorded, and a run in which planner and router die.
func replayed(ctx context.Context, out *show.Printer, dir string) error {
	firsts, err := record.Find(dir, "")
	if err != nil {
		return err
	}
	identical, inputs, outputs := true, 0, 0
	for _, first := range firsts {
		res, err := record.Replay(first, control.Rebuild)
		if err != nil {
			return err
		}
		out.Line(res)
		identical = identical && res.Identical
		inputs, outputs = inputs+res.Inputs, outputs+res.Outputs
	}
	killed, err := replay.Run(ctx, replay.Options{Kill: true})
	if err != nil {
		return err
	}
	out.Line(killed)
	value := 0.0
	if identical && killed.Identical {
		value = 1
	}
	return judge(out, bound{
		Figure: show.Figure{Name: "replay.identical", Value: value, Unit: "1: every output byte is that of the recording"}, Bar: "at least 1", Met: value == 1,
		Note: fmt.Sprintf("%d inputs and %d outputs of planner and router in the live shift, and %d lives of a run in which both were killed", inputs, outputs, len(killed.Lives)),
	}, true)
}

// scenarioNames are the bars of the scenario files; none where they are absent.
func scenarioNames() (out []string) {
	set, err := scenarios.Find(".")
	if err != nil {
		return nil
	}
	for _, s := range scenarios.All() {
		for _, n := range set.Names(s) {
			out = append(out, s+"."+n)
		}
	}
	return out
}

// scenariosPart computes the bars at seed 1, at the load points that they name, with the
// baselines at the settings of the last search.
func scenariosPart(ctx context.Context, out *show.Printer) error {
	set, err := scenarios.Find(".")
	if errors.Is(err, scenarios.ErrAbsent) {
		progress("scenarios are left out: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	root, err := stack.Root()
	if err != nil {
		return err
	}
	st, err := scenarios.ReadSettings(filepath.Join(root, "e2e", "scenarios", "settings.json"), set)
	if err != nil {
		return err
	}
	debug.SetGCPercent(400) // a run holds some 200 MB and makes much that lives shortly
	e := &scenarios.Eval{Set: set, Settings: st, Runner: scenarios.NewRunner(set.Run, 0, os.Stderr), Seeds: []uint64{1}}
	var all []func() error
	lines := make([][]scenarios.Line, len(scenarios.All()))
	for i, s := range scenarios.All() {
		all = append(all, func() (err error) {
			lines[i], err = e.Bars(ctx, s)
			return err
		})
	}
	err = scenarios.Go(all...)
	for _, list := range lines {
		for _, l := range list {
			if l.Model != "" {
				out.Detail(l.Name, l)
			}
		}
	}
	return err
}
