package opscmd

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/serve"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

func TestProbeHTTP(t *testing.T) {
	ready := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ready++; r.URL.Path == "/never" || ready < 2 {
			http.Error(w, "no executor", http.StatusServiceUnavailable)
		}
	}))
	defer srv.Close()
	for _, c := range []struct {
		target, want string // want is part of the error, "" for success
		wait         time.Duration
	}{
		{srv.URL + "/readyz", "", 10 * time.Second}, // the second try succeeds
		{srv.URL + "/never", "status 503: no executor", 300 * time.Millisecond},
		{"ftp://x", "neither an http nor a nats URL", time.Second},
		{"nats://127.0.0.1:1", "probe of nats://127.0.0.1:1", 300 * time.Millisecond},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), c.wait)
		err := (&probe{target: c.target}).run(ctx)
		cancel()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.target, err, c.want)
		}
	}
	if err := (&probe{target: srv.URL, executor: true}).run(t.Context()); !errors.Is(err, serve.ErrUsage) {
		t.Errorf("an executor behind http: %v", err)
	}
}

// TestProbeNATS: JetStream answers, and an executor counts once it has a role.
func TestProbeNATS(t *testing.T) {
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Listen: "127.0.0.1:0", Topology: streams.Topology(streams.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := (&probe{target: s.ClientURL()}).run(ctx); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	beat := func(ctx context.Context, role schemas.Role) {
		body, err := schemas.Encode(&schemas.Heartbeat{Header: schemas.H(), Executor: "x", Role: role})
		for err == nil && ctx.Err() == nil {
			err = nc.Publish(schemas.HBSubject("c0", "x"), body)
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	for role, good := range map[schemas.Role]bool{"": false, schemas.RoleDecode: true} {
		wait := 300 * time.Millisecond
		if good {
			wait = 10 * time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		go beat(ctx, role)
		err := (&probe{target: s.ClientURL(), executor: true, id: "x", cell: "c0"}).run(ctx)
		cancel()
		if (err == nil) != good {
			t.Errorf("role %q: %v", role, err)
		}
	}
}
