package badinput

import (
	"context"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
)

const ctxTokens = 1024

// TestRequests sends every bad request, over HTTP and over NATS.
func TestRequests(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{Args: []string{"--engine", "null", "--kv-mem", "64MiB", "--ctx", "1024"}})
	requests(t, s, append(Shapes(ctxTokens), Params(false)...))
	t.Run("talk", func(t *testing.T) { talk(t, s) })
	good(t, s)
}

// TestEngines sends what an engine itself could stumble over to the real ones.
func TestEngines(t *testing.T) {
	for _, engine := range [...]string{"go", "llama"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			if engine == "llama" && stack.Libraries() == "" {
				t.Skip("the llama.cpp libraries are not installed; `make engine` installs them")
			}
			s := stack.Start(t, stack.Options{Args: []string{"--engine", engine, "--model", models(t)["good"], "--kv-mem", "16MiB", "--ctx", "1024", "--slots", "2"}})
			ins := Params(engine == "llama")
			if !testing.Short() {
				ins = append(ins, Shapes(ctxTokens)...)
			}
			requests(t, s, ins)
			good(t, s)
		})
	}
}

// requests runs inputs and reports every outcome that is not as it must be.
func requests(t *testing.T, s *stack.Stack, ins []Input) {
	t.Helper()
	errs := Run(t.Context(), s, ins, func(in *Input, o *Outcome) {
		t.Logf("%-45s %-4s %3d %-24s %8s %.160s", in.Name, o.Way, o.Status, o.Code, o.Took.Round(time.Millisecond), o.Text)
	})
	for _, err := range errs {
		t.Error(err)
	}
}

// talk sends what only NATS can carry.
func talk(t *testing.T, s *stack.Stack) {
	b, err := NewBus(s)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	refs, err := References(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	errs := Run(ctx, s, refs, nil)
	errs = append(errs, Subjects(ctx, b)...)
	errs = append(errs, Events(ctx, b)...)
	errs = append(errs, Service(ctx, b, s.Ready.Model)...)
	errs = append(errs, Cancelled(ctx, b), Reused(ctx, s, b))
	errs = append(errs, Agents(ctx, s, b)...)
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestFullArena: prompts that together exceed the KV memory by far are answered
// all the same, and what was evicted is computed again.
func TestFullArena(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{Args: []string{"--engine", "go", "--model", models(t)["good"], "--ctx", "1024", "--kv-mem", "3MiB"}})
	b, err := NewBus(s)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l := NewLedger(b)
	for round := range 2 {
		for i := range 20 {
			if err := l.Publish(ctx, tokensFrom(i+2, 700, 8)); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if err := l.Wait(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, lost := range l.Lost() {
		t.Error(lost)
	}
	good(t, s)
}

// good: a good turn works, and no log tells of a crash.
func good(t *testing.T, s *stack.Stack) {
	t.Helper()
	in := Input{Name: "good turn", Body: chat(""), Code: Answered, Status: 200}
	for _, err := range Run(t.Context(), s, []Input{in}, nil) {
		t.Error(err)
	}
	lines, err := Crashes(s)
	if err != nil {
		t.Error(err)
	}
	for _, l := range lines {
		t.Errorf("a log tells of a crash: %s", l)
	}
	for _, e := range s.Events() {
		if e.Event == "ended" {
			t.Errorf("%s ended: %s", e.ID, e.Cause)
		}
	}
}
