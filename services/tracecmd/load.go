package tracecmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/services/serve"
)

// loadFlags say how a trace becomes loads.
type loadFlags struct {
	plan  workload.PlanOptions
	half  string
	seeds []uint
	file  string // of a plan
}

func (l *loadFlags) flags(f *pflag.FlagSet) {
	o := workload.PlanOptions{}.WithDefaults()
	f.UintSliceVar(&l.seeds, "seed", []uint{1}, "seeds of the draw of sessions, separated by commas; a load each")
	f.StringVar(&l.half, "half", string(workload.Both), "which sessions: odd, even or both")
	f.IntVar(&l.plan.Live, "live", o.Live, "sessions that run at any time")
	f.IntVar(&l.plan.Calls, "calls", o.Calls, "calls in all")
	f.IntVar(&l.plan.MaxContext, "max-context", o.MaxContext, "leave out sessions with longer prompts, in tokens")
	f.StringVar(&l.file, "plan", "", "file of a plan that weir trace schedule wrote, instead of a draw")
}

// check refuses what would silently mean the default.
func (l *loadFlags) check() error {
	for _, f := range [...]struct {
		name    string
		v, most int
	}{{"live", l.plan.Live, 4096}, {"calls", l.plan.Calls, 1 << 20}, {"max-context", l.plan.MaxContext, 1 << 24}} {
		if f.v < 1 || f.v > f.most { // a load is held in memory
			return fmt.Errorf("%w: --%s is %d, allowed are 1 to %d", serve.ErrUsage, f.name, f.v, f.most)
		}
	}
	if len(l.seeds) == 0 {
		return fmt.Errorf("%w: --seed names no seed", serve.ErrUsage)
	}
	return nil
}

// read makes the loads of a trace. Loads that a file holds as they are have no seeds.
func (l *loadFlags) read(file string) ([]*workload.Schedule, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%w; name a file of recorded sessions, or a schedule", err)
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewReaderSize(f, 1<<16)
	if begins(in, workload.PlanFormat) {
		return nil, fmt.Errorf("%w: %s is a plan, which holds no calls: name the trace that it was drawn from, and the plan with --plan", serve.ErrUsage, file)
	}
	if begins(in, workload.Format) {
		s, err := workload.Decode(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return []*workload.Schedule{s}, nil
	}
	recs, _, err := workload.ReadWeka(file, in)
	if err != nil {
		return nil, err
	}
	plans, err := l.plans(file, recs)
	if err != nil {
		return nil, err
	}
	var out []*workload.Schedule
	for _, p := range plans {
		s, err := p.Schedule(recs)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// begins peeks at the first line for the name of a format.
func begins(in *bufio.Reader, format string) bool {
	head, err := in.Peek(256)
	return (err == nil || errors.Is(err, io.EOF)) && bytes.Contains(head, []byte(`"`+format+`"`))
}

func (l *loadFlags) plans(file string, recs []workload.Recording) ([]*workload.Plan, error) {
	if l.file != "" {
		p, err := ReadPlan(l.file)
		if err != nil {
			return nil, err
		}
		return []*workload.Plan{p}, nil
	}
	var out []*workload.Plan
	for _, seed := range l.seeds {
		o := l.plan
		o.Half, o.Seed = workload.Half(l.half), uint64(seed)
		p, err := workload.NewPlan(traceName(file), recs, o)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", serve.ErrUsage, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// traceName is the name of a file without folder and endings.
func traceName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	return name
}

// maxPlan bounds a plan's file in bytes.
const maxPlan = 64 << 20

// ReadPlan reads a plan that WritePlan wrote.
func ReadPlan(file string) (*workload.Plan, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var p workload.Plan
	d := json.NewDecoder(io.LimitReader(f, maxPlan))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("%s is no plan: %w; `weir trace schedule` writes one", file, err)
	}
	return &p, nil
}

// WritePlan writes a plan, one place a line.
func WritePlan(w io.Writer, p *workload.Plan) error {
	head, err := json.Marshal(struct {
		Format string               `json:"format"`
		Trace  string               `json:"trace"`
		Make   workload.PlanOptions `json:"options"`
	}{p.Format, p.Trace, p.Make})
	if err != nil {
		return err
	}
	b := append(head[:len(head)-1], `,"places":[`...)
	for i, pl := range p.Places {
		if i > 0 {
			b = append(b, ',')
		}
		line, err := json.Marshal(pl)
		if err != nil {
			return err
		}
		b = append(append(b, '\n'), line...)
	}
	_, err = w.Write(append(b, "\n]}\n"...))
	return err
}
