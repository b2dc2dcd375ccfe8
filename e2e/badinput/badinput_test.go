package badinput

import (
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
)

const ctxTokens = 1024

// TestRequests sends every bad request, over HTTP and over NATS.
func TestRequests(t *testing.T) {
	s := stack.Start(t, stack.Options{Args: []string{"--engine", "null", "--kv-mem", "64MiB", "--ctx", "1024"}})
	ins := append(Shapes(ctxTokens), Params(false)...)
	errs := Run(t.Context(), s, ins, func(in *Input, o *Outcome) {
		t.Logf("%-45s %-4s %3d %-24s %8s %.160s", in.Name, o.Way, o.Status, o.Code, o.Took.Round(time.Millisecond), o.Text)
	})
	for _, err := range errs {
		t.Error(err)
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
}
