package up

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/services/serve"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// TestFirstRoles: a new stack takes the roles of its flags. A later one keeps pins, and
// with a planner that acts what that found, unless the cell then lacked a phase.
func TestFirstRoles(t *testing.T) {
	topo := streams.Topology(streams.Options{})
	srv, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Topology: topo})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	nc, err := nats.Connect("", nats.InProcessServer(srv))
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
	p, d, m := schemas.RolePrefill, schemas.RoleDecode, schemas.RoleMixed
	found := func(r schemas.Role) schemas.Assignment {
		return schemas.Assignment{Role: r, Plan: "1-1", By: "planner"}
	}
	pinned := func(r schemas.Role) schemas.Assignment { return schemas.Assignment{Role: r, Pinned: true} }
	for i, c := range []struct {
		planner string
		before  []schemas.Assignment // of p0, d0, d1
		want    []schemas.Role
	}{
		{serve.PlannerAct, nil, []schemas.Role{p, d, d}},
		{serve.PlannerAct, []schemas.Assignment{found(p), found(p), found(d)}, []schemas.Role{p, p, d}},
		{serve.PlannerAdvise, []schemas.Assignment{found(p), found(p), found(d)}, []schemas.Role{p, d, d}},
		{serve.PlannerAct, []schemas.Assignment{found(d), found(d), found(d)}, []schemas.Role{p, d, d}},
		{serve.PlannerAct, []schemas.Assignment{found(d), pinned(d), found(d)}, []schemas.Role{p, d, d}},
		{serve.PlannerAct, []schemas.Assignment{pinned(m), found(d), found(d)}, []schemas.Role{m, d, d}},
		{serve.PlannerAdvise, []schemas.Assignment{pinned(p), pinned(m), found(d)}, []schemas.Role{p, m, d}},
		{serve.PlannerOff, []schemas.Assignment{pinned(m), found(p), pinned(d)}, []schemas.Role{p, d, d}},
	} {
		cell := "cell-" + string(rune('a'+i))
		s := &stack{o: Options{Options: serve.Options{Cell: cell, Planner: c.planner}}, nc: nc}
		cs := []*child{{id: "control", role: "control"}, {id: "tier", role: "tier"}, {id: "p0", role: "prefill"}, {id: "d0", role: "decode"}, {id: "d1", role: "decode"}}
		for k := range c.before {
			a := c.before[k]
			a.Header = schemas.H()
			if _, err := assign.Write(t.Context(), js, cell, cs[k+2].id, &a, 0); err != nil {
				t.Fatal(err)
			}
		}
		epochs, err := s.firstRoles(t.Context(), cs)
		if err != nil {
			t.Fatal(err)
		}
		for k, want := range c.want {
			a, seq, err := assign.Read(t.Context(), js, cell, cs[k+2].id)
			if err != nil {
				t.Fatal(err)
			}
			if a.Role != want || epochs[cs[k+2].id] != seq || len(epochs) != 3 {
				t.Errorf("case %d, %s: %s with epoch %d, said %v; want %s", i, cs[k+2].id, a.Role, seq, epochs, want)
			}
		}
	}
}
