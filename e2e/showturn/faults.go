package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/weir-dev/weir/e2e/bench"
	"github.com/weir-dev/weir/e2e/chaos"
	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
)

// The faults part: 200 turns, four faults of each kind.
const (
	faultTurns    = 200
	faultSessions = 8
	faultsPerKind = 4
)

func recoverNames() []string {
	var out []string
	for _, k := range chaos.Kinds() {
		out = append(out, "recover."+k+"_s_p95")
	}
	return out
}

// killLine says what went wrong, if anything did.
type killLine struct {
	Seed    uint64 `json:"seed,omitempty"`
	Problem string `json:"problem,omitempty"`
}

func killPart(ctx context.Context, out *show.Printer) error {
	if stack.Libraries() == "" {
		return errNoLibraries
	}
	seed := uint64(time.Now().UnixNano())
	out.Line(killLine{Seed: seed})
	r, err := chaos.Run(ctx, chaos.Options{
		Seed: seed, Turns: faultTurns, Sessions: faultSessions, PerKind: faultsPerKind, Kinds: chaos.Kinds(), Engine: "llama",
		Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "showturn: "+format+"\n", args...) },
	})
	if r == nil {
		return err
	}
	for _, p := range r.Problems {
		out.Line(killLine{Problem: p})
	}
	kinds := 0
	for _, k := range chaos.Kinds() {
		if r.Hits[k] > 0 {
			kinds++
			out.Figure("recover."+k+"_s_p95", r.P95(k), "s")
		}
	}
	out.Figure("kill.turns", float64(r.Turns), "turns")
	out.Figure("kill.kinds_hit", float64(kinds), "kinds")
	out.Figure("kill.lost", float64(r.Lost), "turns")
	out.Figure("kill.duplicated", float64(r.Duplicated), "tokens and results")
	out.Figure("kill.changed_tokens", float64(r.Changed), "tokens")
	return err
}

func poisonPart(ctx context.Context, out *show.Printer) error {
	engine := "go"
	if stack.Libraries() != "" {
		engine = "llama"
	}
	r, err := chaos.Poison(ctx, engine, 100)
	if r == nil {
		return err
	}
	for _, p := range r.Problems {
		out.Line(killLine{Problem: p})
	}
	out.Figure("poison.executor_deaths", float64(r.Deaths), "deaths")
	out.Figure("poison.others_lost", float64(r.OthersLost), "turns")
	out.Line(map[string]int{"poison_dead_letters": r.DeadLetters, "poison_good_results": r.Good})
	return err
}

// benchPart prints the figures of one benchmark.
func benchPart(run func(ctx context.Context, dir string) ([]show.Figure, error)) func(context.Context, *show.Printer) error {
	return func(ctx context.Context, out *show.Printer) error {
		if stack.Libraries() == "" {
			return errNoLibraries
		}
		dir, err := os.MkdirTemp("", "weir-bench-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		figures, err := run(ctx, dir)
		out.Figures(figures)
		return err
	}
}

func overheadPart(ctx context.Context, dir string) ([]show.Figure, error) {
	return bench.Overhead(ctx, dir, "llama", 160)
}

func nullPart(ctx context.Context, _ string) ([]show.Figure, error) {
	return bench.Null(ctx, 8*time.Second)
}

func kvPart(ctx context.Context, dir string) ([]show.Figure, error) {
	return bench.KVAgainstMemcpy(ctx, dir, "llama")
}
