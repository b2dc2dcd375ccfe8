package flips

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Options of a run.
type Options struct {
	Engine string // llama or go
	Seed   uint64
	Flips  int
	Agents int           // concurrent, 8 by default
	Long   int           // tokens of a long answer, 1,000 by default
	Gap    time.Duration // between two changes, 400 ms by default
	Args   []string      // further flags of `weir up`
	Log    func(format string, args ...any)
}

// Figures are what a run found. Times are milliseconds.
type Figures struct {
	Flips         int // changes that came into force
	Turns         int
	LostTurns     int
	ChangedTokens int
	Repeated      int // tokens that a reader got twice
	BlocksLost    int // that a session's turn left and the next one did not find
	HitBefore     float64
	HitAfter      float64
	// From the write of an assignment until the new role was heard, and, as the
	// executor reported them, the stages.
	Ms, ReturnMs, HandMs, VerifyMs []float64
	PauseMs                        []float64 // between the frames around a hand-over
	Handed, Finished, Returned     int       // jobs
	RolledBack                     int
	Missing, Samples               int // looks at which a phase was missing, of how many
	Stale                          int
	Problems                       []string
	Slow                           []string // stages of turns whose readers waited for long
}

// P is the q-quantile (nearest rank) of xs, -1 without any.
func P(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return -1
	}
	s := append([]float64(nil), xs...)
	sort.Float64s(s)
	return s[min(len(s)-1, max(0, int(float64(len(s))*q+0.999999)-1))]
}

func (o *Options) defaults() {
	if o.Agents == 0 {
		o.Agents = 8
	}
	if o.Long == 0 {
		o.Long = 1000
	}
	if o.Gap == 0 {
		o.Gap = 400 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
}

// slots: the whole load fits one decode executor, which may be all that decodes.
func (o *Options) args() []string {
	return append([]string{
		"--engine", o.Engine, "--prefill", "2", "--decode", "2", "--ctx", "8192", "--slots", strconv.Itoa(o.Agents + 2), "--direct-max=-1",
		"--kv-mem", "4GiB", // both runs of all sessions, or the second one is not admitted
		"--planner", "off", // roles are changed by the run
	}, o.Args...)
}

// initial are the roles with which `weir up --prefill 2 --decode 2` starts.
func initial() (map[string]schemas.Role, []string) {
	return map[string]schemas.Role{"p0": schemas.RolePrefill, "p1": schemas.RolePrefill, "d0": schemas.RoleDecode, "d1": schemas.RoleDecode},
		[]string{"p0", "p1", "d0", "d1"}
}

// Run changes roles under the load of agents, then runs the same turns in calm.
func Run(ctx context.Context, o Options) (f *Figures, err error) {
	o.defaults()
	s, err := stack.Launch(ctx, stack.Options{Args: o.args()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	b, err := newBench(ctx, &o, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.watch.close()) }()
	f = &Figures{}
	hot := &agents{client: b.client, tenant: "flips", seed: o.Seed, long: o.Long, wait: true}
	if err := f.under(ctx, &o, hot, b.watch, func() error { return f.change(ctx, &o, b.changer) }); err != nil {
		return f, fmt.Errorf("%w\n%s", err, s.Logs(15))
	}
	o.Log("%d changes, %d turns; the same turns in calm", f.Flips, len(hot.records))
	calm := &agents{client: b.client, tenant: "calm"}
	twin := calm.calm(ctx, hot.records, o.Agents)
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	f.add(compare(hot.records, twin))
	f.Repeated = hot.dup
	f.watched(b.watch)
	return f, nil
}

// bench is what a run has beside its stack.
type bench struct {
	client  *turns.Client
	watch   *watch
	changer *changer
}

func newBench(ctx context.Context, o *Options, s *stack.Stack) (*bench, error) {
	b := &bench{}
	var err error
	if b.client, err = s.Client(); err != nil {
		return nil, err
	}
	nc, err := s.Connect("flips-watch")
	if err != nil {
		return nil, err
	}
	if b.watch, err = newWatch(ctx, nc, s.Ready.Cell); err != nil {
		return nil, err
	}
	roles, ids := initial()
	if err := b.watch.known(ctx, len(ids)); err != nil {
		return nil, errors.Join(err, b.watch.close())
	}
	b.changer, err = newChanger(nc, s.Ready.Cell, b.watch, o.Seed, roles, ids)
	return b, err
}

// under works while do changes roles, until do has ended and the turns in flight too.
func (f *Figures) under(ctx context.Context, o *Options, a *agents, w *watch, do func() error) error {
	looking, stopLooking := context.WithCancel(ctx)
	defer stopLooking()
	go w.sample(looking)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); a.run(ctx, o.Agents, stop) }()
	err := do()
	close(stop)
	<-done
	return err
}

// change makes the role changes of a run without faults.
func (f *Figures) change(ctx context.Context, o *Options, ch *changer) error {
	for i := range o.Flips {
		pause(ctx, o.Gap)
		took, err := ch.change(ctx)
		if err != nil {
			return err
		}
		f.Flips++
		f.Ms = append(f.Ms, took.Seconds()*1000)
		if (i+1)%20 == 0 {
			o.Log("%d changes, p50 %.0f ms, p95 %.0f ms", i+1, P(f.Ms, .5), P(f.Ms, .95))
		}
	}
	return nil
}

func (f *Figures) add(t *twins) {
	f.Turns, f.LostTurns, f.ChangedTokens, f.BlocksLost, f.PauseMs = t.turns, t.lost, t.changed, t.blocksLost, t.pauses
	f.HitBefore, f.HitAfter = share(t.calm, t.prompt), share(t.found, t.prompt)
	f.Problems, f.Slow = append(f.Problems, t.problems...), t.slows
}

func share(a, b int) float64 { return float64(a) / float64(max(1, b)) }

// watched adds what executors reported of the changes.
func (f *Figures) watched(w *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.flips {
		if x.Back != "" {
			f.RolledBack++
			f.Problems = append(f.Problems, x.executor+" went back: "+x.Back)
		}
		f.ReturnMs, f.HandMs, f.VerifyMs = append(f.ReturnMs, ms(x.ReturnNS)), append(f.HandMs, ms(x.HandNS)), append(f.VerifyMs, ms(x.VerifyNS))
		f.Handed, f.Finished, f.Returned = f.Handed+x.Handed, f.Finished+x.Finished, f.Returned+x.Returned
	}
	f.Missing, f.Samples, f.Stale = w.missing, w.samples, w.stale
	f.Problems = append(f.Problems, w.problems...)
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }

// String is a summary in one line.
func (f *Figures) String() string {
	q := func(xs []float64) string { return fmt.Sprintf("%.0f/%.0f", P(xs, .5), P(xs, .95)) }
	return fmt.Sprintf("%d changes %s ms (return %s, hand over %s, verify %s), %d jobs handed over, %d ended, %d returned; "+
		"%d pauses %s ms; %d turns, %d lost, %d tokens changed, %d repeated, %d blocks lost, hits %.4f before, %.4f after; %d of %d looks without a phase, %d stale",
		f.Flips, q(f.Ms), q(f.ReturnMs), q(f.HandMs), q(f.VerifyMs), f.Handed, f.Finished, f.Returned,
		len(f.PauseMs), q(f.PauseMs), f.Turns, f.LostTurns, f.ChangedTokens, f.Repeated, f.BlocksLost, f.HitBefore, f.HitAfter, f.Missing, f.Samples, f.Stale)
}
