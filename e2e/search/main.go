// Command search tunes the baselines of the registered scenarios in the simulated cell
// and writes what it finds to e2e/scenarios/settings.json. Then it prints the bars at
// these settings, one JSON line each. Progress goes to standard error.
//
// Runs are kept under bin/search: a search that was stopped goes on where it was, as
// long as the program and the scenario files are the same.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-dev/weir/e2e/scenarios"
)

type options struct {
	full         bool
	baselines    bool
	cores        int
	seeds        []uint64
	only         []string
	store, stamp string
	settings     string
}

func main() {
	debug.SetGCPercent(400) // a run holds some 200 MB and makes much that lives shortly
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := flags()
	if err != nil {
		fmt.Fprintf(os.Stderr, "search: %v\n", err)
		os.Exit(2)
	}
	if err := search(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "search: %v\n", err)
		os.Exit(1)
	}
}

func flags() (o options, err error) {
	var seeds, only string
	flag.BoolVar(&o.full, "full", false, "all splits, loops and arms; hours")
	flag.BoolVar(&o.baselines, "baselines", false, "baselines only: no run of weir, so no overload and no bars; may be repeated with -stamp while weir changes")
	flag.IntVar(&o.cores, "cores", runtime.NumCPU(), "runs at a time")
	flag.StringVar(&seeds, "seeds", "", "seeds, separated by commas (default: 1; with -full 1 to 5)")
	flag.StringVar(&only, "only", "", "scenarios, separated by commas; what the settings say of others stays (default: all)")
	flag.StringVar(&o.store, "store", "bin/search", "folder that keeps the runs")
	flag.StringVar(&o.stamp, "stamp", "", "take runs of this stamp as this program's own (default: a hash of the program and the files)")
	flag.StringVar(&o.settings, "settings", "e2e/scenarios/settings.json", "the file to write")
	flag.Parse()
	if seeds == "" {
		seeds = "1"
		if o.full {
			seeds = "1,2,3,4,5"
		}
	}
	for s := range strings.SplitSeq(seeds, ",") {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return o, fmt.Errorf("-seeds: %w", err)
		}
		o.seeds = append(o.seeds, n)
	}
	o.only = scenarios.All()
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	return o, nil
}

func search(ctx context.Context, o options, stdout, stderr io.Writer) error {
	set, err := scenarios.Find(".")
	if err != nil {
		return err
	}
	for _, n := range o.only {
		if set.Scenarios[n] == nil {
			return fmt.Errorf("there is no scenario %q; known are %s", n, strings.Join(scenarios.All(), ", "))
		}
	}
	if o.stamp == "" {
		if o.stamp, err = stamp(set); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.store, 0o755); err != nil {
		return err
	}
	runner := scenarios.NewRunner(set.Run, o.cores, stderr)
	defer runner.Close() //nolint:errcheck // every run was written when it ended
	n, err := runner.Keep(filepath.Join(o.store, "runs.jsonl"), o.stamp)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "search: stamp %.12s, %d runs are there already\n", o.stamp, n)
	st, err := scenarios.ReadSettings(o.settings, set)
	if err != nil { // none yet, or of other files
		st = &scenarios.Settings{}
	}
	s := &scenarios.Search{Set: set, Runner: runner, Seeds: o.seeds, Reduced: !o.full, Baselines: o.baselines}
	out := json.NewEncoder(stdout)
	began := time.Now()
	missed := error(nil) // bars that could not be computed
	err = s.All(ctx, o.only, st, func(scenario string, st *scenarios.Settings) error {
		st.Date, st.Commit = time.Now().UTC().Format(time.DateOnly), commit(ctx)
		if err := st.Write(o.settings); err != nil {
			return err
		}
		if o.baselines {
			made, took := runner.Made()
			fmt.Fprintf(stderr, "search: %s is done after %s; %d runs of %s together\n", scenario, time.Since(began).Round(time.Second), made, took.Round(time.Second))
			return nil
		}
		lines, err := (&scenarios.Eval{Set: set, Settings: st, Runner: runner, Seeds: o.seeds}).Bars(ctx, scenario)
		missed = errors.Join(missed, err)
		err = nil
		for _, l := range lines {
			if l.Model != "" {
				err = errors.Join(err, out.Encode(l))
			}
		}
		made, took := runner.Made()
		fmt.Fprintf(stderr, "search: %s is done after %s; %d runs of %s together\n", scenario, time.Since(began).Round(time.Second), made, took.Round(time.Second))
		return err
	})
	return errors.Join(err, missed)
}

// stamp names this program and the files that it reads.
func stamp(set *scenarios.Set) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(exe)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	fmt.Fprint(h, set.Hash())
	return hex.EncodeToString(h.Sum(nil)), nil
}

// commit names the source; empty without git.
func commit(ctx context.Context) string {
	b, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
