package main

import (
	"context"

	"github.com/weir-dev/weir/e2e/badinput"
	"github.com/weir-dev/weir/e2e/show"
)

// fullLine is what was seen on the way, or a turn that was lost.
type fullLine struct {
	Full string `json:"full,omitempty"`
	Lost string `json:"lost,omitempty"`
}

// fullPart fills streams and a disk, and counts acknowledged turns without exactly
// one good result.
func fullPart(ctx context.Context, out *show.Printer) error {
	f, err := badinput.RunFull(ctx)
	for _, n := range f.Notes {
		out.Line(fullLine{Full: n})
	}
	for _, l := range f.Lost {
		out.Line(fullLine{Lost: l})
	}
	if f.Acked > 0 {
		out.Figure("full.lost", float64(len(f.Lost)), "turns")
	}
	return err
}
