package chaos

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// The kinds of faults.
const (
	DecodeKill   = "decode_kill"
	PrefillKill  = "prefill_kill"
	TierKill     = "tier_kill"
	ControlKill  = "control_kill"
	NATSKill     = "nats_kill"
	ExecutorStop = "executor_stop"
	NATSGone     = "nats_gone"
)

// Kinds are all of them.
func Kinds() []string {
	return []string{DecodeKill, PrefillKill, TierKill, ControlKill, NATSKill, ExecutorStop, NATSGone}
}

// outage is how long NATS is away, or an executor stopped.
const outage = 10 * time.Second

// faults injects one fault after the other, in random order, until each kind has
// hit work in flight often enough.
func (r *run) faults(ctx context.Context) error {
	var todo []string
	for _, k := range r.o.Kinds {
		for range r.o.PerKind {
			todo = append(todo, k)
		}
	}
	r.rng.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	for i, kind := range todo {
		// Some turns in between, so that each fault meets a stack that works.
		if err := r.progress(ctx, 2); err != nil {
			return err
		}
		took, err := r.inject(ctx, kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		r.o.Log("fault %d of %d: %s, next first token after %.2f s", i+1, len(todo), kind, took)
		r.mu.Lock()
		r.report.Hits[kind]++
		r.report.Recover[kind] = append(r.report.Recover[kind], took)
		r.mu.Unlock()
	}
	return nil
}

// progress waits until n more turns have ended.
func (r *run) progress(ctx context.Context, n int64) error {
	want := r.finished.Load() + n
	return until(ctx, 120*time.Second, fmt.Sprintf("%d more turns", n), func() bool { return r.finished.Load() >= want })
}

// inject does one fault and returns the seconds until the next first token: of a
// turn that the fault hit where an executor is the victim (for a decode that had
// begun, the next token), of any turn otherwise.
func (r *run) inject(ctx context.Context, kind string) (float64, error) {
	switch kind {
	case DecodeKill:
		return r.victim(ctx, schemas.RoleDecode, schemas.StageDecode, r.killed)
	case PrefillKill:
		return r.victim(ctx, schemas.RolePrefill, schemas.StagePrefill, r.killed)
	case ExecutorStop:
		role, stage := schemas.RoleDecode, schemas.StageDecode
		if r.rng.IntN(2) == 0 {
			role, stage = schemas.RolePrefill, schemas.StagePrefill
		}
		return r.victim(ctx, role, stage, r.stopped)
	case TierKill:
		return r.part(ctx, func(ctx context.Context) error { return r.killed(ctx, "tier") })
	case ControlKill:
		return r.part(ctx, func(ctx context.Context) error { return r.killed(ctx, "control") })
	case NATSKill:
		return r.part(ctx, func(ctx context.Context) error {
			return errors.Join(r.nats.Kill(syscall.SIGKILL), r.nats.Restart(ctx))
		})
	case NATSGone:
		return r.part(ctx, func(ctx context.Context) error {
			if err := r.nats.Kill(syscall.SIGKILL); err != nil {
				return err
			}
			if err := pause(ctx, outage); err != nil {
				return err
			}
			return r.nats.Restart(ctx)
		})
	}
	return 0, fmt.Errorf("chaos: unknown kind %q", kind)
}

// killed kills a process and waits until it runs again.
func (r *run) killed(ctx context.Context, id string) error {
	pid, err := r.stack.Kill(id, syscall.SIGKILL)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	_, err = r.stack.WaitRestarted(ctx, id, pid)
	return err
}

// stopped stops a process for a while; it wakes up with jobs that others have
// taken over.
func (r *run) stopped(ctx context.Context, id string) error {
	if _, err := r.stack.Kill(id, syscall.SIGSTOP); err != nil {
		return err
	}
	err := pause(ctx, outage)
	_, wake := r.stack.Kill(id, syscall.SIGCONT)
	return errors.Join(err, wake)
}

// victim picks an executor with work of that stage in hand, does the fault, and
// measures until one of the turns it held goes on.
func (r *run) victim(ctx context.Context, role schemas.Role, stage schemas.Stage, do func(context.Context, string) error) (float64, error) {
	var id string
	var hit []*flight
	var at time.Time
	err := until(ctx, 60*time.Second, "an executor with work in hand", func() bool {
		at = time.Now() // whatever a turn that is picked says comes later
		id, hit = r.pick(role, stage)
		return len(hit) > 0
	})
	if err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- do(ctx, id) }()
	var took time.Duration
	err = until(ctx, 90*time.Second, "a turn of "+id+" that goes on", func() bool {
		for _, f := range hit {
			f.mu.Lock()
			last := f.last
			f.mu.Unlock()
			if last.After(at) {
				took = last.Sub(at)
				return true
			}
		}
		return false
	})
	return took.Seconds(), errors.Join(err, <-done)
}

// pick returns an executor of the role whose newest heartbeat holds jobs of the
// stage that are in flight, with those turns. A turn that has its result and is being
// judged says nothing more.
func (r *run) pick(role schemas.Role, stage schemas.Stage) (string, []*flight) {
	hs := r.beats.with(role, stage)
	if len(hs) == 0 {
		return "", nil
	}
	h := hs[r.rng.IntN(len(hs))]
	r.mu.Lock()
	defer r.mu.Unlock()
	var hit []*flight
	for _, held := range h.Held {
		if f := r.flying[held.Job]; f != nil && held.Stage == stage && !f.ended() {
			hit = append(hit, f)
		}
	}
	return h.Executor, hit
}

func (f *flight) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// part does a fault to a part that all turns need, and measures until the next
// first token of any turn.
func (r *run) part(ctx context.Context, do func(context.Context) error) (float64, error) {
	err := until(ctx, 60*time.Second, "turns in flight", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.flying) > 0
	})
	if err != nil {
		return 0, err
	}
	for len(r.firsts) > 0 {
		<-r.firsts
	}
	at := time.Now()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	limit := time.NewTimer(90 * time.Second)
	defer limit.Stop()
	for {
		select {
		case t := <-r.firsts:
			if t.After(at) {
				return t.Sub(at).Seconds(), <-done
			}
		case <-limit.C:
			return 0, errors.Join(errors.New("chaos: no first token within 90 s"), <-done)
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), <-done)
		}
	}
}

// pause lasts d: the length of an outage is what is being tested.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// until polls a condition, for at most limit.
func until(ctx context.Context, limit time.Duration, what string, cond func() bool) error {
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	end := time.Now().Add(limit)
	for !cond() {
		if time.Now().After(end) {
			return fmt.Errorf("chaos: waited %s for %s", limit, what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
	return nil
}
