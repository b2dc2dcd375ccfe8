// Command benchrun measures weir's benchmarks and prints them as JSON lines; see
// `make bench`. Without arguments it runs all of them, else those named: engines,
// kv, overhead, null.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/weir-dev/weir/e2e/bench"
	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "benchrun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, want []string) error {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	engine := "go"
	if stack.Libraries() != "" {
		engine = "llama"
	}
	out := json.NewEncoder(os.Stdout)
	for _, b := range []struct {
		name string
		run  func() ([]show.Figure, error)
	}{
		{"engines", func() ([]show.Figure, error) { return bench.GoAgainstLlama(ctx, dir) }},
		{"kv", func() ([]show.Figure, error) { return bench.KVAgainstMemcpy(ctx, dir, engine) }},
		{"overhead", func() ([]show.Figure, error) { return bench.Overhead(ctx, dir, engine, 60) }},
		{"null", func() ([]show.Figure, error) { return bench.Null(ctx, 5*time.Second) }},
	} {
		if len(want) > 0 && !slices.Contains(want, b.name) {
			continue
		}
		figures, err := b.run()
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		for _, f := range figures {
			if err := out.Encode(f); err != nil {
				return err
			}
		}
	}
	return nil
}
