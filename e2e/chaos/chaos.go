package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// Options of a run.
type Options struct {
	Seed     uint64
	Turns    int
	Sessions int // concurrent
	PerKind  int // faults of each kind that must hit work in flight
	Kinds    []string
	Engine   string
	Log      func(format string, args ...any)
}

// Report is what a run found.
type Report struct {
	Turns      int                  // acknowledged
	Lost       int                  // without exactly one good result
	Duplicated int                  // tokens delivered twice, or results beyond the first
	Changed    int                  // tokens that differ from the run without faults
	Hits       map[string]int       // faults that hit work in flight
	Recover    map[string][]float64 // seconds, one per hit
	Problems   []string
}

// P95 is the 95th percentile (nearest rank) of a kind's recoveries in seconds.
func (r *Report) P95(kind string) float64 {
	xs := append([]float64(nil), r.Recover[kind]...)
	if len(xs) == 0 {
		return -1
	}
	sort.Float64s(xs)
	return xs[min(len(xs)-1, (len(xs)*95+99)/100-1)]
}

// run is one chaos run.
type run struct {
	o      Options
	nats   *stack.NATS
	stack  *stack.Stack
	client *turns.Client
	rng    *rand.Rand
	beats  *beats
	ps     []*prompt

	mu       sync.Mutex
	flying   map[string]*flight // by job
	report   Report
	finished atomic.Int64
	firsts   chan time.Time // first tokens of any turn
}

// flight is a turn in work.
type flight struct {
	mu   sync.Mutex
	last time.Time // of the newest event
	over bool      // that was the result: none follows
}

// Run runs a stack on a NATS of its own, and turns under faults, until both the
// turns and the faults are done.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &run{o: o, rng: rand.New(rand.NewPCG(o.Seed, 1)), flying: map[string]*flight{}, firsts: make(chan time.Time, 1024)}
	r.report = Report{Hits: map[string]int{}, Recover: map[string][]float64{}}
	if r.o.Log == nil {
		r.o.Log = func(string, ...any) {}
	}
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	defer r.stop()
	r.o.Log("seed %d: learning %d prompts without faults", o.Seed, len(r.ps))
	if err := learn(ctx, r.client, r.ps); err != nil {
		return nil, err
	}
	count, err := countResults(ctx, r.nats.URL)
	if err != nil {
		return nil, err
	}
	defer count.close()
	faultsDone := make(chan error, 1)
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	go func() { faultsDone <- r.faults(working) }()
	r.work(ctx, faultsDone)
	return &r.report, r.check(ctx, count)
}

func (r *run) start(ctx context.Context) error {
	var err error
	if r.nats, err = stack.LaunchNATS(ctx, ""); err != nil {
		return err
	}
	r.stack, err = stack.Launch(ctx, stack.Options{NATS: r.nats.URL, Args: []string{
		"--engine", r.o.Engine, "--prefill", "2", "--decode", "2", "--ctx", "2048", "--slots", "6", "--kv-mem", "512MiB", "--direct-max=-1",
	}})
	if err != nil {
		r.stop()
		return err
	}
	if r.client, err = r.stack.Client(); err != nil {
		r.stop()
		return err
	}
	if r.beats, err = listen(r.client.Conn(), schemas.DefaultCell); err != nil {
		r.stop()
		return err
	}
	r.ps = corpus(r.rng, 16)
	return nil
}

func (r *run) stop() {
	if r.stack != nil {
		if err := r.stack.Stop(); err != nil {
			r.problem("stopping: %s", err)
		}
	}
	if err := r.nats.Stop(); err != nil {
		r.problem("stopping NATS: %s", err)
	}
}

func (r *run) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Problems = append(r.report.Problems, fmt.Sprintf(format, args...))
}

// work keeps turns in flight until enough are done and the faults are over.
func (r *run) work(ctx context.Context, faultsDone <-chan error) {
	var wg sync.WaitGroup
	var next atomic.Int64
	over := make(chan struct{})
	go func() {
		if err := <-faultsDone; err != nil {
			r.problem("faults: %s", err)
		}
		close(over)
	}()
	for s := range r.o.Sessions {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= r.o.Turns {
					select {
					case <-over:
						return
					default: // faults still need work to hit
					}
				}
				r.one(ctx, s, n)
			}
		})
	}
	wg.Wait()
}

// one publishes a turn and reads it to its end.
func (r *run) one(ctx context.Context, session, n int) {
	p := r.ps[n%len(r.ps)]
	// A tenant of its own per turn: blocks are never shared between tenants, so
	// every prompt is computed again and there is work to hit.
	ref := turns.Ref{Tenant: "chaos" + strconv.Itoa(n), Session: "s" + strconv.Itoa(session), Turn: "t" + strconv.Itoa(n)}
	f := &flight{}
	job := schemas.JobID(ref.Tenant, ref.Session, ref.Turn)
	r.mu.Lock()
	r.flying[job] = f
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.flying, job)
		r.mu.Unlock()
		r.finished.Add(1)
	}()
	s, err := r.publish(ctx, ref, p.turn(ref.Turn))
	if err != nil {
		if ctx.Err() == nil {
			r.problem("turn %s was not acknowledged: %s", ref.Turn, err)
		}
		return
	}
	defer s.Close()
	r.judge(ctx, ref, p, f, s)
}

// publish tries again while nothing was acknowledged: a turn counts from its
// acknowledgement on.
func (r *run) publish(ctx context.Context, ref turns.Ref, t *schemas.Turn) (*turns.Stream, error) {
	for try := 0; ; try++ {
		s, err := r.client.Publish(ctx, turns.Request{Tenant: ref.Tenant, Session: ref.Session, Turn: t})
		if err == nil || try >= 200 || ctx.Err() != nil {
			return s, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}
