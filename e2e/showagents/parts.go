package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/weir-dev/weir/e2e/cache"
	"github.com/weir-dev/weir/e2e/clients"
	"github.com/weir-dev/weir/e2e/connect"
	"github.com/weir-dev/weir/e2e/erase"
	"github.com/weir-dev/weir/e2e/explain"
	"github.com/weir-dev/weir/e2e/infer"
	"github.com/weir-dev/weir/e2e/media"
	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
)

// parts are all runs, in order. What measures time comes first, on a machine that is
// still quiet.
func parts() []show.Part {
	return []show.Part{
		show.New("connect", connectNames(), connectPart),
		show.New("cache", styleNames(), cachePart),
		show.New("media", []string{"media.cross_hits", "media.stored_ratio"}, mediaPart),
		show.New("clients", []string{"clients.passed", "clients.failed", "loop.tool_waits_seen"}, clientsPart),
		show.New("infer", inferNames(), inferPart),
		show.New("explain", []string{"explain.causes_right", "explain.causes_total"}, explainPart),
		show.New("erase", []string{"erase.canary_found"}, erasePart),
	}
}

// errNoLibraries: the default model's weights are random, so tool calls are to be
// constrained, and only llama.cpp does that.
var errNoLibraries = errors.New("the llama.cpp libraries are not installed; `make engine` installs them")

func connectNames() (out []string) {
	for _, l := range connect.Levels() {
		out = append(out, fmt.Sprintf("connect.%s.hit_rate", l), fmt.Sprintf("connect.%s.lines", l))
	}
	return out
}

// connectSize is the load of each level.
var connectSize = connect.Size{Sessions: 4, Steps: 8}

func connectPart(ctx context.Context, out *show.Printer) error {
	_, err := connect.Run(ctx, connectSize, func(o *connect.Outcome) {
		out.Line(o)
		out.Figure(fmt.Sprintf("connect.%s.hit_rate", o.Level), o.HitRate, "share of prompt tokens")
		out.Figure(fmt.Sprintf("connect.%s.lines", o.Level), float64(o.Lines), "lines changed")
	})
	return err
}

func styleNames() (out []string) {
	for _, s := range cache.Styles() {
		out = append(out, "cache.second_turn_share."+string(s))
	}
	return out
}

func cachePart(ctx context.Context, out *show.Printer) error {
	if stack.Libraries() == "" {
		return errNoLibraries
	}
	_, err := cache.RunStyles(ctx, func(r *cache.Returned) {
		out.Line(r)
		if r.Style != cache.StyleReasoning {
			out.Figure("cache.second_turn_share."+string(r.Style), r.Share, "share of the first turn's tokens")
		}
	})
	return err
}

func mediaPart(ctx context.Context, out *show.Printer) error {
	figures, err := media.Run(ctx)
	out.Figures(figures)
	return err
}

func clientsPart(ctx context.Context, out *show.Printer) error {
	f, err := clients.Run(ctx)
	if err != nil {
		return err
	}
	out.Figure("clients.passed", float64(f.Passed), "clients")
	out.Figure("clients.failed", float64(f.Failed), "clients")
	out.Figure("loop.tool_waits_seen", float64(f.ToolWaits), "tool waits")
	return errors.Join(f.Errors...)
}

// inferNames are the kinds for which recorded or generated sessions have labels.
func inferNames() (out []string) {
	for _, k := range [...]string{"tool_wait", "user_wait", "sub_agent", "fork", "compaction", "rewrite", "pruned"} {
		out = append(out, "infer."+k+".precision", "infer."+k+".recall")
	}
	return out
}

func inferPart(ctx context.Context, out *show.Printer) error {
	root, err := stack.Root()
	if err != nil {
		return err
	}
	figures, err := infer.Run(ctx, filepath.Join(filepath.Dir(root), "shared"))
	out.Figures(figures)
	return err
}

func explainPart(ctx context.Context, out *show.Printer) error {
	right, total, details, err := explain.Run(ctx)
	for _, d := range details {
		out.Line(d)
	}
	out.Figure("explain.causes_right", float64(right), "planted causes")
	out.Figure("explain.causes_total", float64(total), "planted causes")
	return err
}

func erasePart(ctx context.Context, out *show.Printer) error {
	figures, err := erase.Run(ctx)
	out.Figures(figures)
	return err
}
