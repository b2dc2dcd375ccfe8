package evict

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/weir-dev/weir/kvtier/replay"
	"github.com/weir-dev/weir/kvtier/retain"
	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/services/tracecmd"
)

//go:embed testdata/weka-*.json
var wekaPlans embed.FS

// The seeds whose plans are kept.
var (
	wekaHeldOut = []uint64{1, 2, 3, 4, 5}
	wekaTuning  = []uint64{11, 12}
)

// ErrNoTrace: the recordings are not there.
var ErrNoTrace = errors.New("evict: the recorded sessions are not there")

// wekaFile is where the recordings lie in the shared folder.
const wekaFile = "traces/weka-cc-traces/weka_cc_710.rle.jsonl.gz"

// WekaFile finds the recordings in the folder shared beside the repository, from the
// folder dir upwards.
func WekaFile(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		p := filepath.Join(dir, "shared", wekaFile)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("%w: no shared/%s above; put it beside the repository", ErrNoTrace, wekaFile)
		}
		dir = up
	}
}

// WekaOptions say what is measured.
type WekaOptions struct {
	Trace      string          // file of the recordings; empty: found from the working folder upwards
	Half       workload.Half   // Even, the held-out half, unless Odd
	Seeds      int             // of those whose plans are kept, from the first one on; 0 is all
	Calls      int             // of each load; 0 is all 12,000
	Capacities []int64         // tokens; empty: 4, 5 and 6 million
	Policies   []replay.Policy // empty: weir, inferred, lru and belady
	Keeper     retain.Config   // of weir and inferred
}

// WekaRow is the median of the loads for a capacity and a policy.
type WekaRow = tracecmd.Median

// Weka measures, and returns the medians, and the results of every load behind them.
// The gap that weir closes is its share of what lies between LRU and Belady.
func Weka(ctx context.Context, o WekaOptions) ([]WekaRow, []*replay.Result, error) {
	loads, err := WekaLoads(o)
	if err != nil {
		return nil, nil, err
	}
	if len(o.Capacities) == 0 {
		o.Capacities = []int64{4e6, 5e6, 6e6}
	}
	if len(o.Policies) == 0 {
		o.Policies = []replay.Policy{replay.Weir, tracecmd.Inferred, replay.LRU, replay.Belady}
	}
	rs, err := tracecmd.Evict(ctx, loads, tracecmd.Options{Capacities: o.Capacities, Policies: o.Policies, Keeper: o.Keeper})
	if err != nil {
		return nil, nil, err
	}
	return tracecmd.Medians(rs), rs, nil
}

// WekaSweep measures all policies from 1 to 8 million tokens.
func WekaSweep(ctx context.Context, o WekaOptions) ([]WekaRow, error) {
	o.Policies, o.Capacities = tracecmd.Policies(), nil
	for m := int64(1); m <= 8; m++ {
		o.Capacities = append(o.Capacities, m*1e6)
	}
	rows, _, err := Weka(ctx, o)
	return rows, err
}

// WekaLoads are the loads that the kept plans name.
func WekaLoads(o WekaOptions) ([]*workload.Schedule, error) {
	if o.Trace == "" {
		var err error
		if o.Trace, err = WekaFile("."); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(o.Trace)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTrace, err)
	}
	defer func() { _ = f.Close() }()
	recs, _, err := workload.ReadWeka(o.Trace, f)
	if err != nil {
		return nil, err
	}
	seeds := slices.Clone(wekaHeldOut)
	if o.Half == workload.Odd {
		seeds = slices.Clone(wekaTuning)
	}
	if o.Seeds > 0 {
		seeds = seeds[:min(o.Seeds, len(seeds))]
	}
	var out []*workload.Schedule
	for _, seed := range seeds {
		p, err := wekaPlan(o.Half, seed)
		if err != nil {
			return nil, err
		}
		if o.Calls > 0 {
			p.Make.Calls = min(o.Calls, p.Make.Calls)
		}
		s, err := p.Schedule(recs)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// wekaPlan reads a kept plan.
func wekaPlan(half workload.Half, seed uint64) (*workload.Plan, error) {
	if half != workload.Odd {
		half = workload.Even
	}
	name := fmt.Sprintf("testdata/weka-%s-%d.json", half, seed)
	b, err := wekaPlans.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var p workload.Plan
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &p, nil
}
