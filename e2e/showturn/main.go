// Command showturn prints the figures of one agent turn, one JSON line each, from
// runs that it makes itself: {"name":…,"value":…,"unit":…}. Lines without "name" tell
// of single cases. Progress goes to standard error.
//
// Read parts.go first: the list of runs and the figures that each yields.
package main

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

func main() {
	only := flag.String("only", "", "run only these parts, separated by commas")
	list := flag.Bool("list", false, "list the parts and their figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all := parts()
	if *list {
		for _, p := range all {
			fmt.Printf("%-10s %s\n", p.name, strings.Join(p.figures, " "))
		}
		return
	}
	picked, err := pick(all, *only)
	if err == nil {
		err = show(ctx, picked, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "showturn:", err)
		os.Exit(1)
	}
}

// part is a run and the names of the figures that it must print.
type part struct {
	name    string
	figures []string
	run     func(ctx context.Context, out *printer) error
}

func pick(all []part, only string) ([]part, error) {
	if only == "" {
		return all, nil
	}
	var out []part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q; see -list", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// show runs the parts one after the other. One that fails does not keep the others
// from running, but the command fails.
func show(ctx context.Context, ps []part, stdout, stderr io.Writer) error {
	var errs []error
	for _, p := range ps {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		out := &printer{w: stdout, seen: map[string]bool{}}
		began := time.Now()
		err := p.run(ctx, out)
		fmt.Fprintf(stderr, "showturn: %s took %s\n", p.name, time.Since(began).Round(time.Second))
		for _, f := range p.figures {
			if !out.seen[f] {
				err = errors.Join(err, fmt.Errorf("figure %s is missing", f))
			}
		}
		if err = errors.Join(err, out.err); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// printer writes JSON lines.
type printer struct {
	w    io.Writer
	seen map[string]bool
	err  error
}

// figure prints one of the figures.
func (p *printer) figure(name string, value float64, unit string) {
	p.seen[name] = true
	p.line(struct {
		Name  string  `json:"name"`
		Value float64 `json:"value"`
		Unit  string  `json:"unit"`
	}{name, value, unit})
}

// line prints anything else, such as one case.
func (p *printer) line(v any) {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(p.w, "%s\n", b)
	}
	p.err = errors.Join(p.err, err)
}
