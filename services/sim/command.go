package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas/calib"
	"github.com/weir-dev/weir/services/serve"
)

type flags struct {
	system, tier, order, model, dir string
	load, derate, period            float64
	seed                            uint64
	sessions                        int
	restart                         time.Duration
	admit                           bool
	output                          string
}

// Command is `weir sim`.
func Command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "sim SCENARIO.json",
		Short: "Simulate a scenario on a virtual clock, with the router, executors and planner that ship",
		Long: `Simulate a scenario on a virtual clock, with the router, executors and planner that ship.

The scenario file names the cluster and its work; workloads.json stands beside it.
Systems: static:P (P executors prefill, the others decode), mixed (all do both, with
chunked prefill), weir, and dynamo, a re-implementation of published policies; with :P
the last two begin with P that prefill. weir comes with the shared memory, its own order
and admission, the others with private memory and LRU.`,
		Example: `  weir sim shift.json --system static:6 --tier shared --calib calib --model glm-5.2_gb300_dep4
  weir sim shift.json --system weir --order weir --load 1.5 --seed 2 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fs := c.Flags()
	fs.StringVar(&f.system, "system", "weir", "system: "+Systems)
	fs.StringVar(&f.tier, "tier", "", "host memory: shared, private, none (default what the system is compared with)")
	fs.StringVar(&f.order, "order", "", "what leaves it first: weir, lru (default what the system is compared with)")
	fs.StringVar(&f.model, "model", "", "calibration (default the first that the scenario names)")
	fs.StringVar(&f.dir, "calib", ".", "folder of calibration files")
	fs.Float64Var(&f.load, "load", 1, "factor on concurrency")
	fs.Float64Var(&f.derate, "derate", 1, "modelled speed that is reached; 0 takes the calibration's")
	fs.Float64Var(&f.period, "period", 0, "seconds in which the phases come round, where they alternate")
	fs.IntVar(&f.sessions, "sessions", 0, "sessions at once, where the scenario names none")
	fs.Uint64Var(&f.seed, "seed", 1, "seed")
	fs.DurationVar(&f.restart, "restart", -1, "a role change takes a restart of this length; 0 changes roles in place (default the calibrated one with dynamo, else 0)")
	fs.BoolVar(&f.admit, "admit", true, "with system weir: the router admits sessions")
	fs.StringVarP(&f.output, "output", "o", "text", "text or json")
	return c
}

func (f *flags) run(ctx context.Context, file string, out, progress io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	sc, err := LoadScenario(file)
	if err != nil {
		return err
	}
	if f.model == "" && len(sc.Cluster.Calibrations) > 0 {
		f.model = sc.Cluster.Calibrations[0]
	}
	cal, err := LoadCalibration(f.dir, f.model, f.derate)
	if err != nil {
		return fmt.Errorf("%w; --calib names the folder of calibrations, --model one of them, the scenario has %q", err, sc.Cluster.Calibrations)
	}
	o := Options{Cal: cal, Load: f.load, Seed: f.seed, PeriodS: f.period, Concurrency: f.sessions}
	sys, err := f.parse(sc, cal)
	if err != nil {
		return err
	}
	o.Progress = terminal(progress)
	began := time.Now()
	fig, err := Run(ctx, sc, sys, o)
	if isTerminal(progress) {
		fmt.Fprint(progress, "\r\033[K")
	}
	if err != nil {
		return err
	}
	if f.output == "json" {
		return json.NewEncoder(out).Encode(fig)
	}
	return fig.print(out, time.Since(began))
}

// check looks at what only the command line can get wrong.
func (f *flags) check() error {
	switch {
	case f.output != "text" && f.output != "json":
		return fmt.Errorf("%w: -o is %q, known are text, json", serve.ErrUsage, f.output)
	case !(f.derate >= 0 && f.derate <= 1):
		return fmt.Errorf("%w: --derate is %g, allowed are 0 to 1", serve.ErrUsage, f.derate)
	case !(f.load > 0):
		return fmt.Errorf("%w: --load is %g, it is a factor above 0", serve.ErrUsage, f.load)
	case f.restart < 0 && f.restart != -1:
		return fmt.Errorf("%w: --restart is %s, allowed are 0 and more", serve.ErrUsage, f.restart)
	}
	return nil
}

// parse makes a system from its flags.
func (f *flags) parse(sc *Scenario, cal *calib.Calibration) (System, error) {
	sys, err := ParseSystem(f.system, sc.Cluster.Workers, cal, f.seed)
	if err != nil {
		return sys, err
	}
	if f.tier != "" {
		sys.Tier = Tier(f.tier)
	}
	if f.order != "" {
		sys.Order = Order(f.order)
	}
	if f.restart >= 0 {
		sys.Restart = f.restart
	}
	sys.Admit = sys.Admit && f.admit
	return sys, nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// terminal shows progress on one line, four times a second; nil where nobody looks.
func terminal(w io.Writer) func(Progress) {
	if !isTerminal(w) {
		return nil
	}
	var last time.Time
	return func(p Progress) {
		if now := time.Now(); now.Sub(last) >= 250*time.Millisecond {
			last = now
			fmt.Fprintf(w, "\r\033[K%3.0f%%  %.0f s simulated, %d turns", 100*p.Share, p.At.Seconds(), p.Turns)
		}
	}
}

// print writes figures for people.
func (f *Figures) print(out io.Writer, took time.Duration) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s on %s, %s, load %g, seed %d (simulated)\n", f.Scenario, f.System, f.Model, f.Load, f.Seed)
	fmt.Fprintf(out, "makespan %.0f s, %d flips, busy prefill %.0f %% decode %.0f %%, took %.1f s\n", f.MakespanS, f.Flips, 100*f.BusyP, 100*f.BusyD, took.Seconds())
	fmt.Fprintln(t, "\tturns\tturns/s\ttok/s\tE2E mean\tP95\tTTFT P50\tP95\tP99\tTPOT ms\tgood/s\thit\tcomputed/new\t")
	row := func(name string, x *Totals) {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.1f\t%.1f\t%.3f\t%.2f\t\n", name, x.Turns, x.TurnsPerS, x.TokPerS,
			x.E2E.Mean, x.E2E.P95, x.TTFT.P50, x.TTFT.P95, x.TTFT.P99, 1e3*x.TPOT.Mean, x.Goodput, x.HitRate, x.Recompute)
	}
	row("all", &f.Totals)
	for _, name := range sortedKeys(f.Classes) {
		row(name, f.Classes[name])
	}
	return errors.Join(t.Flush())
}
