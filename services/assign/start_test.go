package assign

import (
	"context"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// TestStart: the first role is not pinned, what may stay stays, and the epoch is the
// one in force.
func TestStart(t *testing.T) {
	nc, js := bus(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	pins := func(a *schemas.Assignment) bool { return a.Pinned }
	never := func(*schemas.Assignment) bool { return false }
	for i, s := range []struct {
		first  func() error
		keep   func(*schemas.Assignment) bool
		role   schemas.Role
		pinned bool
	}{
		{func() error { return nil }, pins, schemas.RolePrefill, false},
		{func() error { return nil }, pins, schemas.RolePrefill, false}, // nothing to do
		{func() error { return Role(ctx, nc, "c0", "x", schemas.RoleDecode, "test") }, pins, schemas.RoleDecode, true},
		{func() error { return nil }, never, schemas.RolePrefill, false},
	} {
		if err := s.first(); err != nil {
			t.Fatal(err)
		}
		epoch, err := Start(ctx, nc, "c0", "x", schemas.RolePrefill, "test", s.keep)
		if err != nil {
			t.Fatal(err)
		}
		a, seq, err := Read(ctx, js, "c0", "x")
		if err != nil {
			t.Fatal(err)
		}
		if seq != epoch || a.Role != s.role || a.Pinned != s.pinned {
			t.Errorf("step %d: %+v, epoch %d, said %d; want %s, pinned %v", i, a, seq, epoch, s.role, s.pinned)
		}
	}
}

// TestMode: of two that set the mode, one is refused.
func TestMode(t *testing.T) {
	_, js := bus(t)
	if m, seq, err := ReadMode(t.Context(), js, "c0"); m != nil || seq != 0 || err != nil {
		t.Fatalf("a mode that nobody set: %+v, %d, %v", m, seq, err)
	}
	pause := &schemas.PlannerMode{Header: schemas.H(), Mode: schemas.ModePaused, By: "a", Reason: "b", AtNS: 1}
	if err := WriteMode(t.Context(), js, "c0", pause, 0); err != nil {
		t.Fatal(err)
	}
	if err := WriteMode(t.Context(), js, "c0", pause, 0); err == nil {
		t.Error("the second writer was not refused")
	}
	m, seq, err := ReadMode(t.Context(), js, "c0")
	if err != nil || *m != *pause || seq == 0 {
		t.Errorf("%+v, %d, %v", m, seq, err)
	}
}
