package opscmd

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// testBus starts a server with weir's streams; commands reach it over url.
func testBus(t *testing.T) (nc *nats.Conn, js jetstream.JetStream, url string) {
	t.Helper()
	topo := streams.Topology(streams.Options{})
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Topology: topo, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if nc, err = nats.Connect("", nats.InProcessServer(s)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if err := jsrun.Provision(t.Context(), js, topo); err != nil {
		t.Fatal(err)
	}
	return nc, js, s.ClientURL()
}

// TestReadRoles: assignments and reports are joined, and an executor that has gone
// is not shown as one that works.
func TestReadRoles(t *testing.T) {
	nc, js, _ := testBus(t)
	now := time.Unix(1_800_000_000, 0)
	report := func(id string, age time.Duration) {
		t.Helper()
		b, err := schemas.Encode(&schemas.Report{
			Header: schemas.H(), Executor: id, Role: schemas.RoleDecode, Epoch: 1, AtNS: now.Add(-age).UnixNano(), Running: 2, SlotsFree: 6,
		})
		if err == nil {
			_, err = js.Publish(t.Context(), schemas.ReportSubject("c0", id), b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"here", "gone", "never"} {
		if err := assign.Role(t.Context(), nc, "c0", id, schemas.RoleDecode, "test"); err != nil {
			t.Fatal(err)
		}
	}
	report("here", 2*time.Second)
	report("gone", time.Minute)
	rows, err := readRoles(t.Context(), js, "c0", now)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range rows {
		got[r.Executor] = string(r.Assigned) + "/" + r.shown()
	}
	want := map[string]string{"here": "decode/decode", "gone": "decode/gone 1m0s", "never": "decode/"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// beating sends heartbeats of executors until the test ends.
func beating(t *testing.T, nc *nats.Conn, beats ...*schemas.Heartbeat) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, h := range beats {
				b, err := schemas.Encode(h)
				if err == nil {
					err = nc.Publish(schemas.HBSubject("c0", h.Executor), b)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
}

// TestSetRole: an executor that is not heard gets no role unless it is forced, and
// the error names those that are there.
func TestSetRole(t *testing.T) {
	nc, js, url := testBus(t)
	b := &bus{url: url, cell: "c0"}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(t.Output())
	try := func(id string, o setting, says ...string) {
		t.Helper()
		_, before, err := assign.Read(t.Context(), js, "c0", id)
		if err != nil {
			t.Fatal(err)
		}
		err = b.setRole(cmd, id, "mixed", o)
		_, after, errRead := assign.Read(t.Context(), js, "c0", id)
		if errRead != nil {
			t.Fatal(errRead)
		}
		if (err == nil) != (len(says) == 0) || (err == nil) != (after > before) {
			t.Errorf("%s: epoch %d after %d, %v", id, after, before, err)
		}
		for _, part := range says {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
	short := 100 * time.Millisecond
	try("d0", setting{hear: short}, `"d0"`, "no executor", "--cell", "--force")
	beating(t, nc,
		&schemas.Heartbeat{Header: schemas.H(), Executor: "p1", Boot: "b", Role: schemas.RolePrefill, Slots: 1, Context: 128},
		&schemas.Heartbeat{Header: schemas.H(), Executor: "d0", Boot: "b", Role: schemas.RoleDecode, Slots: 1, Context: 128},
		&schemas.Heartbeat{Header: schemas.H(), Executor: "x", Boot: "b", Dead: true})
	try("d9", setting{hear: short}, `"d9"`, "alive are: d0, p1;", "--force")
	try("x", setting{hear: short}, `"x"`, "d0, p1")
	try("d0", setting{hear: time.Minute})
	try("d9", setting{hear: short, force: true})
}

// TestAbsentLetter: a dead letter that is not there is named, with what to do.
func TestAbsentLetter(t *testing.T) {
	_, js, url := testBus(t)
	if _, err := js.Publish(t.Context(), schemas.DeadSubject("decode", "t"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	b := &bus{url: url, cell: "c0"}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	for name, f := range map[string]func(*cobra.Command, string) error{"show": b.showDead, "rm": b.removeDead} {
		err := f(cmd, "7")
		if err == nil || !strings.Contains(err.Error(), "no dead letter 7") || !strings.Contains(err.Error(), "see: weir dead") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.removeDead(cmd, "1"); err != nil {
		t.Error(err)
	}
}
