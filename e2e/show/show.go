// Package show prints figures, one JSON line each, from runs that it makes itself:
// {"name":…,"value":…,"unit":…}. Lines without "name" tell of single cases. Progress
// goes to standard error. The commands showturn and showagents list the runs.
package show

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Part is a run and the names of the figures that it must print.
type Part struct {
	Name    string
	Figures []string
	Run     func(ctx context.Context, out *Printer) error
}

// New makes a part.
func New(name string, figures []string, run func(ctx context.Context, out *Printer) error) Part {
	return Part{Name: name, Figures: figures, Run: run}
}

// Main is the main function of a command that shows parts.
func Main(command string, all []Part) {
	only := flag.String("only", "", "run only these parts, separated by commas")
	list := flag.Bool("list", false, "list the parts and their figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *list {
		for _, p := range all {
			fmt.Printf("%-10s %s\n", p.Name, strings.Join(p.Figures, " "))
		}
		return
	}
	picked, err := Pick(all, *only)
	if err == nil {
		err = run(ctx, command, picked, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", command, err)
		os.Exit(1)
	}
}

// Pick returns the parts of those names, separated by commas; "" means all.
func Pick(all []Part, only string) ([]Part, error) {
	if only == "" {
		return all, nil
	}
	var out []Part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(p Part) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q; see -list", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// run runs the parts one after the other. One that fails does not keep the others
// from running, but the command fails.
func run(ctx context.Context, command string, ps []Part, stdout, stderr io.Writer) error {
	var errs []error
	for _, p := range ps {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		out := NewPrinter(stdout)
		began := time.Now()
		err := p.Run(ctx, out)
		fmt.Fprintf(stderr, "%s: %s took %s\n", command, p.Name, time.Since(began).Round(time.Second))
		for _, f := range p.Figures {
			if !out.seen[f] {
				err = errors.Join(err, fmt.Errorf("figure %s is missing", f))
			}
		}
		if err = errors.Join(err, out.err); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Twice returns the figures that two parts, or one part twice, would print.
func Twice(ps []Part) []string {
	var twice []string
	seen := map[string]bool{}
	for _, p := range ps {
		for _, f := range p.Figures {
			if seen[f] {
				twice = append(twice, f)
			}
			seen[f] = true
		}
	}
	return twice
}

// Figure is one measured value.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Printer writes JSON lines.
type Printer struct {
	w    io.Writer
	seen map[string]bool
	err  error
}

// Figure prints one of the figures.
func (p *Printer) Figure(name string, value float64, unit string) {
	p.seen[name] = true
	p.Line(Figure{Name: name, Value: value, Unit: unit})
}

// Detail prints one of the figures with more beside it: detail must marshal with the
// fields of a Figure.
func (p *Printer) Detail(name string, detail any) {
	p.seen[name] = true
	p.Line(detail)
}

// NewPrinter makes a printer that writes to w.
func NewPrinter(w io.Writer) *Printer { return &Printer{w: w, seen: map[string]bool{}} }

// Figures prints the figures of a run.
func (p *Printer) Figures(list []Figure) {
	for _, f := range list {
		p.Figure(f.Name, f.Value, f.Unit)
	}
}

// Line prints anything else, such as one case.
func (p *Printer) Line(v any) {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(p.w, "%s\n", b)
	}
	p.err = errors.Join(p.err, err)
}
