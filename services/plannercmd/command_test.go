package plannercmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/services/assign"
	"github.com/weir-dev/weir/services/record"
	"github.com/weir-dev/weir/streams"
	"github.com/weir-dev/weir/streams/jsrun"
)

// rig is a NATS with weir's streams and the command on it.
type rig struct {
	*testing.T
	js  jetstream.JetStream
	url string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	topo := streams.Topology(streams.Options{})
	s, err := jsrun.Embedded(jsrun.EmbeddedOptions{Dir: t.TempDir(), Topology: topo, Listen: "127.0.0.1:0"})
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
	return &rig{t, js, s.ClientURL()}
}

func (r *rig) run(args ...string) (string, error) {
	r.Helper()
	c := NewCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(append(args, "--nats", r.url))
	err := c.ExecuteContext(r.Context())
	return out.String(), err
}

// must runs the command and checks what it says.
func (r *rig) must(says []string, args ...string) string {
	r.Helper()
	out, err := r.run(args...)
	if err != nil {
		r.Fatalf("%q: %v", args, err)
	}
	for _, s := range says {
		if !strings.Contains(out, s) {
			r.Errorf("%q does not say %q:\n%s", args, s, out)
		}
	}
	return out
}

func (r *rig) put(subject string, m schemas.Message) {
	r.Helper()
	b, err := schemas.Encode(m)
	if err == nil {
		_, err = r.js.Publish(r.Context(), subject, b)
	}
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) decision(id string, at time.Time, mode schemas.Mode, rule string, changes ...schemas.RoleChange) {
	r.put(schemas.PlanSubject("c0"), &schemas.Plan{
		Header: schemas.H(), ID: id, AtNS: at.UnixNano(), Pool: "m", Mode: mode, Policy: "weir", Rule: rule, Reason: "because of " + rule, Changes: changes,
		Inputs:     schemas.PlanInput{Executors: 4, Size: 4, Prefill: 1, Decode: 3, DemandP: 1.25, BusyP: .9},
		Candidates: []schemas.Candidate{{Prefill: 2, Decode: 2, Flips: 1, Value: 40.5, Cost: .5}, {Prefill: 1, Decode: 3, Value: 30, Why: "prefill"}},
	})
}

// TestLog: decisions are listed with the newest last, chosen by age, number and kind.
func TestLog(t *testing.T) {
	r := newRig(t)
	now := time.Now()
	r.decision("1-1", now, schemas.ModeAct, "dead_band")
	r.decision("1-2", now, schemas.ModeAct, "gain", schemas.RoleChange{Executor: "d0", From: schemas.RoleDecode, To: schemas.RolePrefill})
	r.decision("1-3", now, schemas.ModeAct, "settle")
	out := r.must([]string{"d0 decode>prefill", "because of gain", "1:3"}, "log")
	if a, b := strings.Index(out, "1-1"), strings.Index(out, "1-3"); a < 0 || b < a {
		t.Errorf("the newest is not last:\n%s", out)
	}
	if out := r.must([]string{"1-3"}, "log", "-n", "1"); strings.Contains(out, "1-2") {
		t.Errorf("more than one:\n%s", out)
	}
	if out := r.must([]string{"1-2"}, "log", "--changes", "--since", "1h"); strings.Contains(out, "1-3") {
		t.Errorf("one without changes:\n%s", out)
	}
	var p schemas.Plan
	if err := schemas.Decode([]byte(r.must(nil, "log", "--changes", "-o", "json")), &p); err != nil || p.ID != "1-2" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := r.run("log", "-n", "-1"); err == nil {
		t.Error("a negative limit is taken")
	}
}

// TestExplain: inputs, candidates and what came of each change are said.
func TestExplain(t *testing.T) {
	r := newRig(t)
	now := time.Now()
	to := func(id string) schemas.RoleChange {
		return schemas.RoleChange{Executor: id, From: schemas.RoleDecode, To: schemas.RolePrefill, Why: "least work"}
	}
	r.decision("1-1", now, schemas.ModeAct, "gain", to("done"), to("back"), to("waits"), to("replaced"))
	r.decision("1-2", now.Add(3*time.Second), schemas.ModeAdvise, "gain", to("done"))
	for id, plan := range map[string]string{"done": "1-1", "back": "1-1", "waits": "1-1", "replaced": ""} {
		r.put(schemas.RoleSubject("c0", id), &schemas.Assignment{Header: schemas.H(), Role: schemas.RolePrefill, Plan: plan, By: "somebody"})
	}
	flip := schemas.Flip{Plan: "1-1", From: schemas.RoleDecode, To: schemas.RolePrefill, HandNS: 250e6, Handed: 3}
	r.put(schemas.ReportSubject("c0", "done"), &schemas.Report{Header: schemas.H(), Executor: "done", Flip: &flip})
	bad := flip
	bad.Back = "the engine holds another sequence"
	r.put(schemas.ReportSubject("c0", "back"), &schemas.Report{Header: schemas.H(), Executor: "back", Flip: &bad})
	r.must([]string{
		"decision 1-1", "rule gain: because of gain", "1.250", "90 %", "2:2", "40.50", "chosen", "as it is", "least work",
		"in force 250 ms after the assignment came", "handing over 3", "rolled back after 250 ms: the engine holds", "not reported in force yet", "another assignment came later, by somebody",
		"next 1-2, 3s later",
	}, "explain", "1-1")
	r.must([]string{"was not published: the planner was in mode advise", "would have brought"}, "explain", "1-2")
	if _, err := r.run("explain", "9-9"); err == nil || !strings.Contains(err.Error(), "weir planner log") {
		t.Errorf("an unknown decision: %v", err)
	}
}

// TestModes: what people say stays, with who said it and why.
func TestModes(t *testing.T) {
	r := newRig(t)
	r.must([]string{"none is active"})
	r.must([]string{"paused (before: as the planner was started)"}, "pause", "--by", "ann", "--reason", "maintenance")
	r.must([]string{"paused, set by ann", "maintenance"})
	r.must([]string{"advise (before: paused, by ann)"}, "advise", "--by", "bob")
	r.must([]string{`"mode":"act"`}, "resume", "-o", "json")
	m, _, err := assign.ReadMode(t.Context(), r.js, "c0")
	if err != nil || m.Mode != schemas.ModeAct {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := r.js.Publish(t.Context(), schemas.ModeSubject("c0"), []byte(`{"v":1,"mode":"banana"}`)); err != nil {
		t.Fatal(err)
	}
	r.must([]string{"as it was before", "banana", "weir planner resume"})
	r.must([]string{"paused"}, "pause")
	r.must([]string{"paused, set by"})
}

// TestReplayCommand: a recording of a router is replayed; one that another router made
// fails with the place.
func TestReplayCommand(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	for epoch, most := range map[uint64]int{1: 512, 2: 64} {
		rec, err := record.New(record.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		conf, err := json.Marshal(route.Config{Cell: "c0", Epoch: epoch, DirectMax: 512})
		if err != nil {
			t.Fatal(err)
		}
		a, err := rec.Actor(route.New(route.Config{Cell: "c0", Epoch: epoch, DirectMax: most}), record.Header{Actor: "router", Cell: "c0", Epoch: epoch, Config: conf})
		if err != nil {
			t.Fatal(err)
		}
		at := schemas.Time(1_800_000_000_000_000_000)
		for i := range 20 {
			at += 100_000_000
			a.Step(at, &schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: &schemas.Heartbeat{
				Header: schemas.H(), Executor: []string{"p0", "d0"}[i%2], Boot: "b", Node: "n0", Pool: "m", Role: []schemas.Role{schemas.RolePrefill, schemas.RoleDecode}[i%2], Slots: 4, Context: 4096,
			}}, nil)
		}
		ready := &schemas.Ready{Header: schemas.H(), Tenant: "default", Session: "s", Turn: "t", Job: schemas.JobID("default", "s", "t"), Pool: "m", AdmittedNS: int64(at), MaxNew: 8, Prompt: schemas.Prompt{N: 300, Tail: make(schemas.Tokens, 300)}}
		a.Step(at, &schemas.Msg{Kind: schemas.KindReady, Seq: 5, Ready: ready}, nil)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	out, err := r.run("replay", dir, "--actor", "router")
	if !errors.Is(err, errDiffers) || !strings.Contains(out, "epoch 1: identical; 21 inputs") || !strings.Contains(out, "epoch 2: DIFFERENT") || !strings.Contains(out, "after a ready message") {
		t.Errorf("%v:\n%s", err, out)
	}
	if _, err := r.run("replay", dir, "--actor", "planner"); err == nil || !strings.Contains(err.Error(), "no recording of the planner") {
		t.Errorf("a recording that is not there: %v", err)
	}
}
