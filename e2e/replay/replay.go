// Package replay records a live stack under load, with roles that change and an executor
// that dies, and replays what its planner and its router were told through the same code.
package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/weir-dev/weir/e2e/load"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/control"
	"github.com/weir-dev/weir/services/record"
)

// Options of a run. The zero value takes 26 s on the null engine: the planner's state is
// saved every 10 s, so its second life begins with one.
type Options struct {
	For  time.Duration
	Args []string // further flags of `weir up`
	// Kill ends the deciding process once in the middle, so that each actor has two
	// lives, of which the planner's second begins with a restored state.
	Kill bool
}

// Figures of one run.
type Figures struct {
	Identical bool             `json:"replay.identical"`
	Turns     int              `json:"turns"`
	Seconds   float64          `json:"seconds"` // of load
	Lives     []*record.Result `json:"lives"`
}

// Run records and replays.
func Run(ctx context.Context, o Options) (_ *Figures, err error) {
	if o.For <= 0 {
		o.For = 26 * time.Second
	}
	dir, err := os.MkdirTemp("", "weir-record-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f := &Figures{}
	if err := live(ctx, &o, dir, f); err != nil {
		return nil, err
	}
	firsts, err := record.Find(dir, "")
	if err != nil {
		return nil, err
	}
	f.Identical = true
	seen := map[string]int{}
	for _, first := range firsts {
		res, err := record.Replay(first, control.Rebuild)
		if err != nil {
			return nil, err
		}
		f.Lives = append(f.Lives, res)
		f.Identical = f.Identical && res.Identical
		seen[res.Actor] += res.Outputs
	}
	if seen["planner"] == 0 || seen["router"] == 0 {
		return nil, fmt.Errorf("replay: outputs by actor are %v, both are needed", seen)
	}
	return f, nil
}

// live runs the stack and records it into dir.
func live(ctx context.Context, o *Options, dir string, f *Figures) (err error) {
	args := append([]string{"--engine", "null", "--kv-mem", "128MiB", "--prefill", "2", "--decode", "2", "--planner", "act", "--record", dir}, o.Args...)
	s, err := stack.Launch(ctx, stack.Options{Args: args})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	c, err := s.Client()
	if err != nil {
		return err
	}
	began := time.Now()
	l := load.Start(ctx, c, load.Options{Seed: 2, Agents: 6})
	err = disturb(ctx, s, o, began)
	err = errors.Join(err, l.Stop())
	f.Turns, f.Seconds = l.Turns(), time.Since(began).Seconds()
	return err
}

// disturb changes roles by hand, kills an executor and, half way, the deciding process,
// and waits until the time is over.
func disturb(ctx context.Context, s *stack.Stack, o *Options, began time.Time) error {
	if err := s.SetRoles(ctx, map[string]schemas.Role{"p1": schemas.RoleMixed}); err != nil {
		return err
	}
	if err := kill(ctx, s, "d1"); err != nil {
		return err
	}
	if o.Kill {
		if err := until(ctx, began.Add(o.For/2)); err != nil {
			return err
		}
		if err := kill(ctx, s, "control"); err != nil {
			return err
		}
	}
	return until(ctx, began.Add(o.For))
}

func kill(ctx context.Context, s *stack.Stack, id string) error {
	pid, err := s.Kill(id, syscall.SIGKILL)
	if err != nil {
		return err
	}
	_, err = s.WaitRestarted(ctx, id, pid)
	return err
}

// until lets the load go on until a time.
func until(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
