package scenarios

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/weir-dev/weir/services/sim"
)

// Runner makes runs, as many at a time as it has cores, each one once.
type Runner struct {
	run      func(context.Context, Job) (*sim.Figures, error)
	slots    chan struct{}
	progress io.Writer // a line per run; nil for none

	mu    sync.Mutex
	known map[string]*entry
	store *os.File
	made  int
	took  time.Duration
}

type entry struct {
	done chan struct{}
	f    *sim.Figures
	err  error
}

// NewRunner makes a runner of so many cores; 0 for all.
func NewRunner(run func(context.Context, Job) (*sim.Figures, error), cores int, progress io.Writer) *Runner {
	if progress == nil {
		progress = io.Discard
	}
	if cores <= 0 {
		cores = runtime.NumCPU()
	}
	return &Runner{run: run, slots: make(chan struct{}, cores), progress: progress, known: map[string]*entry{}}
}

// stored is one line of a store: a run and what came out.
type stored struct {
	Stamp   string       `json:"stamp"`
	Job     Job          `json:"job"`
	Figures *sim.Figures `json:"figures,omitempty"`
	Long    bool         `json:"too_long,omitempty"`
	WallS   float64      `json:"wall_s"`
}

// Keep reads the runs that the file has under that stamp, and appends new ones to it,
// so that a search that was stopped goes on. The stamp names the program and the files
// that a run depends on.
func (r *Runner) Keep(file, stamp string) (int, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return 0, err
	}
	n := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var s stored
		if json.Unmarshal(lines.Bytes(), &s) != nil || s.Stamp != stamp || s.Figures == nil && !s.Long {
			continue // of another program, or cut off
		}
		e := &entry{done: make(chan struct{}), f: s.Figures}
		if s.Long {
			e.err = sim.ErrTooLong
		}
		close(e.done)
		r.known[s.Job.key()] = e
		n++
	}
	if err := lines.Err(); err != nil {
		return 0, errors.Join(fmt.Errorf("%s: %w", file, err), f.Close())
	}
	r.store = f
	r.run = r.storing(r.run, stamp)
	return n, nil
}

func (r *Runner) storing(run func(context.Context, Job) (*sim.Figures, error), stamp string) func(context.Context, Job) (*sim.Figures, error) {
	return func(ctx context.Context, j Job) (*sim.Figures, error) {
		began := time.Now()
		f, err := run(ctx, j)
		if err != nil && !errors.Is(err, sim.ErrTooLong) {
			return f, err
		}
		b, merr := json.Marshal(stored{stamp, j, f, err != nil, time.Since(began).Seconds()})
		if merr != nil {
			return nil, merr
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, werr := r.store.Write(append(b, '\n')); werr != nil {
			return nil, werr
		}
		return f, err
	}
}

// Close ends the store.
func (r *Runner) Close() error {
	if r.store == nil {
		return nil
	}
	return r.store.Close()
}

// Do makes a run, or waits for one that was asked for before.
func (r *Runner) Do(ctx context.Context, j Job) (*sim.Figures, error) {
	key := j.key()
	r.mu.Lock()
	e := r.known[key]
	if e != nil {
		r.mu.Unlock()
		select {
		case <-e.done:
			return e.f, e.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	e = &entry{done: make(chan struct{})}
	r.known[key] = e
	r.mu.Unlock()
	e.f, e.err = r.make(ctx, j)
	close(e.done)
	return e.f, e.err
}

func (r *Runner) make(ctx context.Context, j Job) (*sim.Figures, error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.slots }()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	began := time.Now()
	f, err := r.run(ctx, j)
	took := time.Since(began)
	if err != nil {
		err = fmt.Errorf("%s: %w", j, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made, r.took = r.made+1, r.took+took
	switch {
	case err != nil:
		fmt.Fprintf(r.progress, "%4d %5.1fs %v\n", r.made, took.Seconds(), err)
	case f != nil:
		fmt.Fprintf(r.progress, "%4d %5.1fs %s: makespan %.0f s, %.2f turns/s, E2E %.2f s, TTFT p95 %.2f s, flips %d\n",
			r.made, took.Seconds(), j, f.MakespanS, f.TurnsPerS, f.E2E.Mean, f.TTFT.P95, f.Flips+f.Restarts)
	}
	return f, err
}

// Made is how many runs were made and the time that they took together.
func (r *Runner) Made() (int, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made, r.took
}

// Go runs functions side by side and returns their errors joined. The runner bounds
// how many runs that means.
func Go(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = f()
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}
