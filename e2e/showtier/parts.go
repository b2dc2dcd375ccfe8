package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-dev/weir/e2e/evict"
	"github.com/weir-dev/weir/e2e/live"
	"github.com/weir-dev/weir/e2e/peerbench"
	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/e2e/tierbench"
	"github.com/weir-dev/weir/e2e/tierchaos"
	"github.com/weir-dev/weir/kvtier/replay"
	"github.com/weir-dev/weir/services/tracecmd"
)

// parts are all runs, in order. What measures time comes first, on a machine that is
// still quiet.
func parts() []show.Part {
	return []show.Part{
		show.New("bench", append(tierbench.Names(), "peer.vs_tcp", "peer.vs_tcp.10x"), benchPart),
		show.New("live", liveNames(), livePart),
		show.New("chaos", []string{
			"chaos.bytes_differing", "chaos.blocks_lost_after_restart", "chaos.leaked_bytes", "tenant.shared_blocks", "bitflip.missed",
		}, chaosPart),
		show.New("weka", wekaNames(), wekaPart),
		show.New("churn", churnNames(), churnPart),
	}
}

func benchPart(ctx context.Context, out *show.Printer) error {
	figures, err := tierbench.Run(ctx, tierbench.Options{})
	for _, f := range figures {
		out.Figure(f.Name, f.Value, f.Unit)
	}
	if err != nil {
		return err
	}
	for _, f := range [...]struct {
		factor int
		name   string
	}{{1, "peer.vs_tcp"}, {10, "peer.vs_tcp.10x"}} {
		ratio, err := peerbench.Ratio(ctx, f.factor)
		if err != nil {
			return err
		}
		out.Figure(f.name, ratio, "of a bare TCP copy on loopback")
	}
	return nil
}

func liveNames() (out []string) {
	for _, o := range [...]live.Order{live.LRU, live.Weir} {
		out = append(out, fmt.Sprintf("live.%s.recomputed_tokens", o), fmt.Sprintf("live.%s.ttft_ms_p95", o))
	}
	return out
}

func livePart(ctx context.Context, out *show.Printer) error {
	_, err := live.Run(ctx, live.Options{}, func(o *live.Outcome) {
		out.Line(o)
		out.Figure(fmt.Sprintf("live.%s.recomputed_tokens", o.Order), float64(o.Recomputed), "tokens")
		out.Figure(fmt.Sprintf("live.%s.ttft_ms_p95", o.Order), o.TTFTP95, "ms")
	})
	return err
}

func chaosPart(ctx context.Context, out *show.Printer) error {
	r, err := tierchaos.Run(ctx, tierchaos.Long())
	out.Line(r)
	out.Figure("chaos.bytes_differing", float64(r.BytesDiffering), "bytes")
	out.Figure("chaos.blocks_lost_after_restart", float64(r.BlocksLost), "blocks")
	out.Figure("chaos.leaked_bytes", float64(r.BytesLeaked), "bytes")
	out.Figure("tenant.shared_blocks", float64(r.SharedBlocks), "blocks")
	out.Figure("bitflip.missed", float64(r.FlipsMissed+r.HeaderWrong), "flipped bits")
	return errors.Join(err, r.Err())
}

// millions are the capacities of the figures, in millions of tokens.
var millions = [...]int64{4, 5, 6}

// wekaPolicies are the policies whose hit rates are figures.
var wekaPolicies = [...]replay.Policy{replay.Weir, tracecmd.Inferred, replay.LRU, replay.Belady}

func wekaNames() (out []string) {
	for _, m := range millions {
		for _, p := range wekaPolicies {
			out = append(out, fmt.Sprintf("evict.weka.%dM.%s", m, p))
		}
		out = append(out, fmt.Sprintf("evict.weka.%dM.gap_closed", m), fmt.Sprintf("evict.weka.%dM.gap_closed_inferred", m))
	}
	return out
}

const gapUnit = "share of the gap between LRU and Belady"

// wekaPart replays recorded sessions that were not used for tuning, and draws the
// sweep over capacities of the first load.
func wekaPart(ctx context.Context, out *show.Printer) error {
	rows, _, err := evict.Weka(ctx, evict.WekaOptions{})
	if err != nil {
		return err
	}
	for _, r := range rows {
		out.Line(r)
		m := r.Capacity / 1_000_000
		out.Figure(fmt.Sprintf("evict.weka.%dM.%s", m, r.Policy), r.HitRate, "share of prompt tokens found")
		if r.GapClosed == nil {
			continue
		}
		switch r.Policy {
		case replay.Weir:
			out.Figure(fmt.Sprintf("evict.weka.%dM.gap_closed", m), *r.GapClosed, gapUnit)
		case tracecmd.Inferred:
			out.Figure(fmt.Sprintf("evict.weka.%dM.gap_closed_inferred", m), *r.GapClosed, gapUnit)
		}
	}
	return wekaSweep(ctx, out)
}

// sweepCalls are the calls of the sweep's load, a third of the others': it is for the
// shape of the curves.
const sweepCalls = 4000

// wekaSweep measures all policies from 1 to 8 million tokens on one load, and leaves
// the plot in bin.
func wekaSweep(ctx context.Context, out *show.Printer) error {
	rows, err := evict.WekaSweep(ctx, evict.WekaOptions{Seeds: 1, Calls: sweepCalls})
	if err != nil {
		return err
	}
	results := make([]*replay.Result, 0, len(rows))
	for _, r := range rows {
		out.Line(r)
		results = append(results, &replay.Result{Policy: r.Policy, Capacity: r.Capacity, HitRate: r.HitRate})
	}
	return draw("weka-sweep.svg", evict.SweepChart("Recorded coding agents, 64 at a time", results))
}

// draw writes a chart as an image into bin and as text to standard error.
func draw(name string, c *evict.Chart) error {
	root, err := stack.Root()
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(root, "bin", name))
	if err != nil {
		return err
	}
	if err := c.SVG(f); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return c.Text(os.Stderr)
}

func churnNames() (out []string) {
	for _, m := range [...]int64{3, 4, 5} {
		out = append(out, fmt.Sprintf("evict.churn.%dM.gap_closed", m))
	}
	return append(out, "evict.badhints.loss_points")
}

func churnPart(ctx context.Context, out *show.Printer) error {
	figures, err := evict.Churn(ctx, evict.Options{})
	out.Figures(figures)
	if err != nil {
		return err
	}
	rows, err := evict.Ablation(ctx, evict.Options{})
	for _, r := range rows {
		out.Line(r)
	}
	if err != nil {
		return err
	}
	figures, cases, err := evict.BadHints(ctx, evict.Options{})
	for _, c := range cases {
		out.Line(c)
	}
	out.Figures(figures)
	return err
}
