package stack

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/turns"
)

// answer runs one turn on the null engine.
func answer(t *testing.T, c *turns.Client, session string) *schemas.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	most := int64(8)
	turn := &schemas.Turn{Weir: schemas.TurnMeta{InputTokens: make(schemas.Tokens, 100)}}
	turn.MaxTokens = &most
	s, err := c.Publish(ctx, turns.Request{Session: session, Turn: turn})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := turns.Collect(ctx, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failure != nil {
		t.Fatalf("turn failed: %+v", *r.Failure)
	}
	return r
}

var null = []string{"--engine", "null", "--kv-mem", "64MiB", "--ctx", "1024"}

// TestRestarts: the harness sees children end and come back, and the stack answers
// afterwards.
func TestRestarts(t *testing.T) {
	s := Start(t, Options{Args: null})
	c := s.NewClient(t)
	if r := answer(t, c, "a"); len(r.Tokens) != 8 {
		t.Errorf("%d tokens", len(r.Tokens))
	}
	for _, id := range []string{"d0", "tier", "control"} {
		before := s.PID(id)
		e := s.KillAndWait(t, id, syscall.SIGKILL)
		if e.PID == before || s.PID(id) != e.PID {
			t.Errorf("%s: process %d, then %d; PID says %d", id, before, e.PID, s.PID(id))
		}
	}
	answer(t, c, "b")
}

// TestCtrlCLeavesNothing: neither Ctrl-C nor kill -9 of the supervisor leaves a
// process, a port or shared memory.
func TestCtrlCLeavesNothing(t *testing.T) {
	t.Run("interrupt", func(t *testing.T) {
		s := Start(t, Options{Args: null})
		answer(t, s.NewClient(t), "a")
		if len(s.alive()) < 4 {
			t.Errorf("only %d processes were found while the stack ran", len(s.alive()))
		}
		if err := s.Stop(); err != nil { // Stop looks for what is left
			t.Error(err)
		}
		if s.exitErr != nil {
			t.Errorf("after Ctrl-C `weir up` ended with %v", s.exitErr)
		}
	})
	t.Run("kill -9", func(t *testing.T) {
		s := Start(t, Options{Args: null})
		answer(t, s.NewClient(t), "a")
		if err := syscall.Kill(s.Supervisor(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), stopWait)
		defer cancel()
		if err := s.WaitExit(ctx); err == nil {
			t.Error("a killed process ended without an error")
		}
		if err := s.Leftovers(goneWait); err != nil {
			t.Error(err)
		}
	})
	t.Run("kill -9 while the tier is dead", func(t *testing.T) {
		dir := t.TempDir()
		s := Start(t, Options{Args: null, Dir: dir})
		for _, pid := range []int{s.Supervisor(), s.PID("tier")} {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		// Nobody is left who could remove the memory. The next start in this folder
		// takes it over, and removes it at its end.
		next := Start(t, Options{Args: null, Dir: dir})
		answer(t, next.NewClient(t), "a")
		if next.Ready.KVDir != s.Ready.KVDir {
			t.Errorf("the memory is in %s, it was in %s", next.Ready.KVDir, s.Ready.KVDir)
		}
		if err := next.Stop(); err != nil {
			t.Error(err)
		}
		if err := s.Leftovers(goneWait); err != nil {
			t.Error(err)
		}
	})
}

// TestNATSApart: a server in a process of its own is killed and comes back on its
// port with its streams, and the stack goes on.
func TestNATSApart(t *testing.T) {
	n := StartNATS(t)
	s := Start(t, Options{Args: null, NATS: n.URL})
	c := s.NewClient(t)
	first := answer(t, c, "a")
	url := n.URL
	if err := n.Kill(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := n.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.URL != url {
		t.Errorf("the server came back on %s, it was on %s", n.URL, url)
	}
	answer(t, c, "b")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again, err := c.Result(ctx, turns.Ref{Tenant: first.Tenant, Session: first.Session, Turn: first.Turn})
	if err != nil {
		t.Fatal(err)
	}
	if again.Job != first.Job || len(again.Tokens) != len(first.Tokens) {
		t.Errorf("the stored result is %+v, it was %+v", again, first)
	}
}

// TestRoles: roles are set and reported.
func TestRoles(t *testing.T) {
	s := Start(t, Options{Args: null})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.SetRoles(ctx, map[string]schemas.Role{"p0": schemas.RoleDecode, "d0": schemas.RolePrefill}); err != nil {
		t.Fatal(err)
	}
	if r := answer(t, s.NewClient(t), "a"); r.DecodeOn != "p0" {
		t.Errorf("decoded on %s after the roles were swapped", r.DecodeOn)
	}
}
