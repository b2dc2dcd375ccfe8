package opscmd

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// TestReadRoles: assignments and reports are joined, and an executor that has gone
// is not shown as one that works.
func TestReadRoles(t *testing.T) {
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
