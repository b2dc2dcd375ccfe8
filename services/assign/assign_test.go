package assign

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// bus starts a server with weir's streams.
func bus(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	topo := streams.Topology(streams.Options{})
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Topology: topo})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := jsrun.Provision(t.Context(), js, topo); err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// TestFirstAndRole: First never undoes what was assigned; Role writes only changes.
func TestFirstAndRole(t *testing.T) {
	nc, js := bus(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	steps := []struct {
		do      func(context.Context, *nats.Conn, string, string, schemas.Role, string) error
		role    schemas.Role
		want    schemas.Role
		changes bool
	}{
		{First, schemas.RolePrefill, schemas.RolePrefill, true},
		{First, schemas.RoleDecode, schemas.RolePrefill, false},
		{Role, schemas.RoleDecode, schemas.RoleDecode, true},
		{Role, schemas.RoleDecode, schemas.RoleDecode, false},
		{First, schemas.RolePrefill, schemas.RoleDecode, false},
	}
	before := uint64(0)
	for i, s := range steps {
		if err := s.do(ctx, nc, "c0", "x", s.role, "test"); err != nil {
			t.Fatal(err)
		}
		a, epoch, err := Read(ctx, js, "c0", "x")
		if err != nil {
			t.Fatal(err)
		}
		if a == nil || a.Role != s.want || (epoch != before) != s.changes {
			t.Errorf("step %d: %+v in epoch %d after %d", i, a, epoch, before)
		}
		before = epoch
	}
	if a, epoch, err := Read(ctx, js, "c0", "nobody"); a != nil || epoch != 0 || err != nil {
		t.Errorf("an executor without a role: %+v, %d, %v", a, epoch, err)
	}
}

// TestWriteRefusesTheSlower: of two writers who read the same epoch one is refused.
func TestWriteRefusesTheSlower(t *testing.T) {
	_, js := bus(t)
	a := &schemas.Assignment{Header: schemas.H(), Role: schemas.RoleMixed, By: "test"}
	epoch, err := Write(t.Context(), js, "c0", "x", a, 0)
	if err != nil || epoch == 0 {
		t.Fatalf("first write: epoch %d, %v", epoch, err)
	}
	if _, err := Write(t.Context(), js, "c0", "x", a, 0); err == nil {
		t.Error("a writer who did not know the last epoch was not refused")
	}
}

// TestUnreadable: what cannot be read is named with its place, and everyone who writes
// replaces it.
func TestUnreadable(t *testing.T) {
	nc, js := bus(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	writers := map[string]func() error{
		"first": func() error { return First(ctx, nc, "c0", "first", schemas.RoleDecode, "test") },
		"role":  func() error { return Role(ctx, nc, "c0", "role", schemas.RoleDecode, "test") },
		"start": func() error {
			_, err := Start(ctx, nc, "c0", "start", schemas.RoleDecode, "test", func(*schemas.Assignment) bool { return true })
			return err
		},
	}
	for id, write := range writers {
		for _, body := range []string{"garbage", `{"v":99,"role":"decode"}`, `{"v":1,"role":"emperor"}`} {
			if _, err := js.Publish(ctx, schemas.RoleSubject("c0", id), []byte(body)); err != nil {
				t.Fatal(err)
			}
			if a, epoch, err := Read(ctx, js, "c0", id); a != nil || epoch == 0 || !errors.Is(err, ErrUnreadable) {
				t.Errorf("%s: read %+v, epoch %d, %v", body, a, epoch, err)
			}
			if err := write(); err != nil {
				t.Fatalf("%s over %s: %v", id, body, err)
			}
			if a, _, err := Read(ctx, js, "c0", id); err != nil || a.Role != schemas.RoleDecode {
				t.Errorf("%s over %s: %+v, %v", id, body, a, err)
			}
		}
	}
	if _, err := js.Publish(ctx, schemas.ModeSubject("c0"), []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	if m, seq, err := ReadMode(ctx, js, "c0"); m != nil || seq == 0 || !errors.Is(err, ErrUnreadable) {
		t.Errorf("mode: %+v, sequence %d, %v", m, seq, err)
	}
}

// TestGivesUp: without a stream the tries end with an error that says what failed.
func TestGivesUp(t *testing.T) {
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := First(ctx, nc, "c0", "x", schemas.RoleMixed, "test"); err == nil {
		t.Error("a role was assigned without a stream")
	}
}
