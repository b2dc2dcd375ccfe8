package stack

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/weir-dev/weir/services/turns"
)

// Build returns the weir binary under test.
func Build(t testing.TB) string {
	t.Helper()
	b, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Start runs a stack for a test. At the test's end it is stopped as by Ctrl-C, and
// what it leaves behind fails the test. The logs of a failed test are shown.
func Start(t testing.TB, o Options) *Stack {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Launch(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		logs := ""
		if t.Failed() {
			logs = s.Logs(40)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if logs != "" {
			t.Log(logs)
		}
	})
	return s
}

// StartNATS runs a NATS server apart for a test.
func StartNATS(t testing.TB) *NATS {
	t.Helper()
	n, err := LaunchNATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// NewClient is Client for a test.
func (s *Stack) NewClient(t testing.TB) *turns.Client {
	t.Helper()
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// KillAndWait kills a child and waits until the supervisor has started it again.
func (s *Stack) KillAndWait(t testing.TB, id string, sig syscall.Signal) Event {
	t.Helper()
	pid, err := s.Kill(id, sig)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := s.WaitRestarted(ctx, id, pid)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Logs(20))
	}
	return e
}
