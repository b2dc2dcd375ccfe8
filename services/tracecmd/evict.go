package tracecmd

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/kvtier/replay"
	"github.com/weir-dev/weir/kvtier/retain"
	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/services/serve"
)

// Inferred is the policy weir with agents that say nothing of their branches.
const Inferred replay.Policy = "inferred"

// Policies are the names that --policy takes.
func Policies() []replay.Policy {
	return slices.Insert(replay.Policies(), 1, Inferred)
}

func names(ps []replay.Policy) string {
	var out []string
	for _, p := range ps {
		out = append(out, string(p))
	}
	return strings.Join(out, ", ")
}

// Options of Evict.
type Options struct {
	Capacities []int64         // tokens
	Policies   []replay.Policy // empty: all
	Keeper     retain.Config   // of weir and inferred
	Workers    int             // goroutines; 0 is one per core
}

func evictCommand() *cobra.Command {
	var (
		l          loadFlags
		o          Options
		capacities []string
		policies   []string
		output     string
	)
	c := &cobra.Command{
		Use: "evict TRACE", Short: "Compare orders of eviction on a recorded load", Args: cobra.ExactArgs(1),
		Long: `Replays a load through weir's own lineage and eviction, without a model, and beside
it through other policies and the best order that there could have been. TRACE is a
file of recorded sessions (WEKA's Claude Code traces) or a schedule.

The load is open: an answer takes as long as it did when it was recorded, whether its
prompt was found in memory or not. Hit rates depend on the schedule: compare policies
on one, over several seeds.`,
		Example: "  weir trace evict weka_cc_710.rle.jsonl.gz --capacity 4M,5M,6M --policy weir,lru,belady --seed 1,2,3 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			var err error
			if o.Capacities, err = parseCapacities(capacities); err != nil {
				return err
			}
			for _, p := range policies {
				o.Policies = append(o.Policies, replay.Policy(p))
			}
			loads, err := l.read(args[0])
			if err != nil {
				return err
			}
			rs, err := Evict(cmd.Context(), loads, o)
			if err != nil {
				return err
			}
			if output == "json" {
				return printLines(cmd.OutOrStdout(), rs)
			}
			return printTable(cmd.OutOrStdout(), Medians(rs), len(loads))
		},
	}
	l.flags(c.Flags())
	f := c.Flags()
	f.StringSliceVar(&capacities, "capacity", []string{"4M", "5M", "6M"}, "sizes of the tier in tokens, separated by commas; k and M are thousands and millions")
	f.StringSliceVar(&policies, "policy", nil, "policies, separated by commas: "+names(Policies())+" (default: all)")
	f.StringVarP(&output, "output", "o", "", "json: one object a line for each load, capacity and policy")
	return c
}

func parseCapacities(list []string) ([]int64, error) {
	var out []int64
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: --capacity names no size; give numbers of tokens such as 4M,500k", serve.ErrUsage)
	}
	for _, s := range list {
		digits, unit := strings.TrimRight(s, "kKmM"), 1.0
		switch strings.ToLower(s[len(digits):]) {
		case "k":
			unit = 1e3
		case "m":
			unit = 1e6
		}
		v, err := strconv.ParseFloat(digits, 64)
		if n := int64(v * unit); err == nil && v > 0 && v < 1e12 && n >= workload.BlockTokens && len(s)-len(digits) <= 1 {
			out = append(out, n)
			continue
		}
		return nil, fmt.Errorf("%w: --capacity: %q is not a number of tokens such as 4M or 500k", serve.ErrUsage, s)
	}
	return out, nil
}

// Evict replays every load with every capacity and policy. Results are in the order of
// loads, capacities and policies; equal arguments give equal results. Gaps are set
// where LRU and Belady are among the policies.
func Evict(ctx context.Context, loads []*workload.Schedule, o Options) ([]*replay.Result, error) {
	if len(o.Policies) == 0 {
		o.Policies = Policies()
	}
	for _, p := range o.Policies {
		if !slices.Contains(Policies(), p) {
			return nil, fmt.Errorf("%w: --policy: %q is not known, known are %s", serve.ErrUsage, p, names(Policies()))
		}
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	var out []*replay.Result
	for _, s := range loads {
		rs, err := evict(ctx, s, o)
		if err != nil {
			return nil, err
		}
		out = append(out, rs...)
	}
	replay.Compare(out)
	return out, nil
}

// evict replays one load: what lineage makes of it is recorded once per mode.
func evict(ctx context.Context, s *workload.Schedule, o Options) ([]*replay.Result, error) {
	logs := map[replay.Mode]*replay.Log{}
	var modes []replay.Mode
	for _, p := range o.Policies {
		if m := modeOf(p); !slices.Contains(modes, m) {
			modes = append(modes, m)
		}
	}
	recorded := make([]*replay.Log, len(modes))
	if err := parallel(ctx, o.Workers, len(modes), func(i int) (err error) {
		recorded[i], err = replay.Record(s, modes[i])
		return err
	}); err != nil {
		return nil, err
	}
	for i, m := range modes {
		logs[m] = recorded[i]
	}
	out := make([]*replay.Result, len(o.Capacities)*len(o.Policies))
	err := parallel(ctx, o.Workers, len(out), func(i int) error {
		p := o.Policies[i%len(o.Policies)]
		run := p
		if p == Inferred {
			run = replay.Weir
		}
		r, err := replay.RunConfig(logs[modeOf(p)], run, o.Capacities[i/len(o.Policies)], o.Keeper)
		if err != nil {
			return err
		}
		r.Policy = p
		out[i] = r
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// modeOf is what the agents say when a policy is replayed. Policies that hear nothing
// of branches see the same calls in both modes.
func modeOf(p replay.Policy) replay.Mode {
	if p == Inferred {
		return replay.Inferred
	}
	return replay.Explicit
}

// parallel calls f for 0 to n-1 in several goroutines and returns the first error by
// number.
func parallel(ctx context.Context, workers, n int, f func(i int) error) error {
	errs := make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := range next {
				errs[i] = f(i)
			}
		})
	}
	err := ctx.Err()
	for i := 0; i < n && err == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	close(next)
	wg.Wait()
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return err
}

// Median is the middle one of the results of several loads.
type Median struct {
	Policy        replay.Policy `json:"policy"`
	Capacity      int64         `json:"capacity"`
	Loads         int           `json:"loads"`
	HitRate       float64       `json:"hit_rate"`
	Recomputed    float64       `json:"recomputed_tokens"`
	GapClosed     *float64      `json:"gap_closed,omitempty"`
	GapClosedLeaf *float64      `json:"gap_closed_leaf,omitempty"`
}

// Medians takes the median of every figure over the loads of results, by capacity and
// policy, in the order in which those come first.
func Medians(rs []*replay.Result) []Median {
	type at struct {
		p replay.Policy
		c int64
	}
	by := map[at][]*replay.Result{}
	var order []at
	for _, r := range rs {
		k := at{r.Policy, r.Capacity}
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], r)
	}
	var out []Median
	for _, k := range order {
		list := by[k]
		figure := func(f func(*replay.Result) *float64) *float64 {
			var vs []float64
			for _, r := range list {
				if v := f(r); v != nil {
					vs = append(vs, *v)
				}
			}
			return median(vs)
		}
		m := Median{Policy: k.p, Capacity: k.c, Loads: len(list)}
		m.HitRate = *figure(func(r *replay.Result) *float64 { return &r.HitRate })
		m.Recomputed = *figure(func(r *replay.Result) *float64 { v := float64(r.Recomputed); return &v })
		m.GapClosed = figure(func(r *replay.Result) *float64 { return r.GapClosed })
		m.GapClosedLeaf = figure(func(r *replay.Result) *float64 { return r.GapClosedLeaf })
		out = append(out, m)
	}
	return out
}

func median(vs []float64) *float64 {
	if len(vs) == 0 {
		return nil
	}
	slices.Sort(vs)
	v := vs[len(vs)/2]
	if len(vs)%2 == 0 {
		v = (vs[len(vs)/2-1] + v) / 2
	}
	return &v
}

// printTable is the form for people.
func printTable(w io.Writer, ms []Median, loads int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "capacity\tpolicy\thit rate\trecomputed\tgap closed\tof leaf-lru's\n")
	share := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f", *v)
	}
	for _, m := range ms {
		fmt.Fprintf(t, "%s\t%s\t%.3f\t%s\t%s\t%s\n", amount(float64(m.Capacity)), m.Policy, m.HitRate, amount(m.Recomputed), share(m.GapClosed), share(m.GapClosedLeaf))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "medians of %d loads; gaps are shares of what lies between LRU, or leaf-lru, and the best order\n", loads)
	return err
}

// amount writes a number of tokens as --capacity takes it.
func amount(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1fk", n/1e3)
	default:
		return fmt.Sprintf("%.0f", n)
	}
}
