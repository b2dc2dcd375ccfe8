package conform

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

// Test runs every case in a world of its own.
func Test(t *testing.T, run NewWorld) {
	small := map[string]int64{streams.Ready: 2 << 20}
	for _, c := range []struct {
		name string
		f    func(t *testing.T, w World)
	}{
		{"order per subject", testOrder},
		{"inputs are acknowledged after their publishes", testAckAfterPublish},
		{"a full stream gives the input back", testFullGivesBack},
		{"a full stream is confirmed as such", testFullConfirmed},
		{"held inputs come again after a crash", testHold},
		{"a durable redelivers after its wait", testAckWait},
		{"an id is stored once", testDedupe},
		{"expected sequence and confirmation", testExpect},
		{"dead letters for what cannot be read", testDeadInput},
		{"dead letters for what cannot be written", testDeadOutput},
		{"ticks", testTicks},
		{"local operations", testOps},
		{"snapshot and resume", testSnapshot},
		{"graceful stop keeps the state", testStop},
		{"core messages", testCore},
		{"where an input starts", testStarts},
		{"trace context", testTrace},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			run(t, streams.Topology(streams.Options{MaxBytes: small}), c.f)
		})
	}
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func publish(t *testing.T, w World, subject, id string, body []byte) {
	t.Helper()
	if err := w.Publish(subject, id, body); err != nil {
		t.Fatal(err)
	}
}

func testOrder(t *testing.T, w World) {
	a := newActor(func(_ *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind == schemas.KindDone {
			out = append(out, planOut(in.Done.Job))
		}
		return out
	})
	w.Start(Service{Name: "svc", Actor: a, Inputs: []streams.Input{{Stream: streams.Done, Filters: []string{"done.c0.*"}, Policy: streams.NoAck}}})
	var in, plans []string
	for i := range 600 {
		job := fmt.Sprintf("j%d", i)
		publish(t, w, schemas.DoneSubject("c0", job), "", encoded(t, doneMsg(job)))
		in, plans = append(in, "done "+job), append(plans, "p-"+job)
	}
	publish(t, w, schemas.DoneSubject("c1", "other"), "", encoded(t, doneMsg("other")))
	w.Sleep(5 * time.Second)
	want(t, "inputs", a.got, in)
	want(t, "publishes", ids(w.Stored(streams.Plan)), plans)
}

// turnsToReady publishes a ready message per turn.
func turnsToReady(pad int) func(*actor, schemas.Time, *schemas.Msg, []schemas.Msg) []schemas.Msg {
	return func(_ *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind == schemas.KindTurn {
			out = append(out, readyOut(in.Turn.Weir.Turn, pad))
		}
		return out
	}
}

var agentInput = streams.Input{Stream: streams.Agent, Durable: "lineage", Policy: streams.AutoAck}

func testAckAfterPublish(t *testing.T, w World) {
	a := newActor(turnsToReady(0))
	w.Start(Service{Name: "svc", Actor: a, Inputs: []streams.Input{agentInput}})
	var all []string
	for i := range 20 {
		id := fmt.Sprintf("u%d", i)
		publish(t, w, schemas.AgentSubject("t", "s", schemas.EventTurn), "t/s/"+id, turnBody(id))
		all = append(all, "turn "+id)
	}
	w.Sleep(2 * time.Second)
	want(t, "turns", a.got, all)
	if n := len(w.Stored(streams.Ready)); n != 20 {
		t.Errorf("%d ready messages", n)
	}
	w.Crash("svc")
	b := newActor(nil)
	w.Start(Service{Name: "svc", Actor: b, Inputs: []streams.Input{agentInput}})
	w.Sleep(time.Minute)
	if len(b.got) != 0 {
		t.Errorf("acknowledged turns came again: %v", b.got)
	}
}

func testFullGivesBack(t *testing.T, w World) {
	a := newActor(turnsToReady(300 << 10))
	w.Start(Service{Name: "svc", Actor: a, Inputs: []streams.Input{agentInput}})
	for i := range 10 {
		id := fmt.Sprintf("u%d", i)
		publish(t, w, schemas.AgentSubject("t", "s", schemas.EventTurn), "t/s/"+id, turnBody(id))
	}
	w.Sleep(5 * time.Minute)
	stored := map[string]int{}
	count := func() {
		for _, m := range w.Stored(streams.Ready) {
			stored[m.ID]++
		}
		w.Purge(streams.Ready)
	}
	count()
	if len(stored) == 10 || len(stored) == 0 {
		t.Fatalf("%d ready messages fit, the stream should have been full", len(stored))
	}
	w.Sleep(5 * time.Minute)
	count()
	if len(stored) != 10 {
		t.Errorf("after making room %d of 10 turns are ready: %v", len(stored), stored)
	}
	for id, n := range stored {
		if n != 1 {
			t.Errorf("%s was stored %d times", id, n)
		}
	}
}

func testFullConfirmed(t *testing.T, w World) {
	a := newActor(func(_ *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind == schemas.KindDone {
			m := readyOut(in.Done.Job, 600<<10)
			m.Confirm = true
			out = append(out, m)
		}
		return out
	})
	w.Start(Service{Name: "svc", Actor: a, Inputs: []streams.Input{{Stream: streams.Done, Policy: streams.NoAck}}})
	for i := range 4 {
		job := fmt.Sprintf("j%d", i)
		publish(t, w, schemas.DoneSubject("c0", job), "", encoded(t, doneMsg(job)))
		w.Sleep(10 * time.Second)
	}
	got := strings.Join(a.got, ",")
	if !strings.Contains(got, "published r-j0 ,") || !strings.Contains(got, "published r-j3 full") {
		t.Errorf("got %s", got)
	}
}

func holdInput(recreate bool, wait time.Duration) streams.Input {
	return streams.Input{
		Stream: streams.Ready, Filters: []string{"ready.c0.>"}, Durable: "router-c0", Policy: streams.Hold, Recreate: recreate, AckWait: wait,
	}
}

func testHold(t *testing.T, w World) {
	// Acknowledges the turn that a done message names.
	on := func(a *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		switch in.Kind {
		case schemas.KindReady:
			a.count = int(in.Seq)
		case schemas.KindDone:
			out = append(out, planOut(in.Done.Job), schemas.Msg{Kind: schemas.KindAck, Subject: "ready.c0.t.s.x", Seq: uint64(a.count)})
		default:
		}
		return out
	}
	ins := []streams.Input{holdInput(true, 0), {Stream: streams.Done, Policy: streams.NoAck, Deliver: streams.DeliverNew}}
	a := newActor(on)
	w.Start(Service{Name: "svc", Actor: a, Inputs: ins})
	w.Sleep(time.Second)
	for _, id := range []string{"u1", "u2", "u3"} {
		publish(t, w, schemas.ReadySubject("c0", "t", "s", id), "", encoded(t, readyMsg(id, 0)))
	}
	w.Sleep(time.Second)
	if n := len(w.Stored(streams.Ready)); n != 3 {
		t.Fatalf("%d held messages in the queue, want 3", n)
	}
	publish(t, w, schemas.DoneSubject("c0", "j"), "", encoded(t, doneMsg("j")))
	w.Sleep(time.Second)
	if n := len(w.Stored(streams.Ready)); n != 2 {
		t.Errorf("%d messages after one acknowledgement, want 2", n)
	}
	w.Crash("svc")
	b := newActor(nil)
	w.Start(Service{Name: "svc", Actor: b, Inputs: ins})
	w.Sleep(2 * time.Second)
	want(t, "after the crash", b.got, []string{"ready u1", "ready u2"})
}

func testAckWait(t *testing.T, w World) {
	in := holdInput(false, 5*time.Second)
	a := newActor(nil)
	w.Start(Service{Name: "svc", Actor: a, Inputs: []streams.Input{in}})
	publish(t, w, schemas.ReadySubject("c0", "t", "s", "u1"), "", encoded(t, readyMsg("u1", 0)))
	w.Sleep(30 * time.Second)
	want(t, "while in hand", a.got, []string{"ready u1"})
	w.Crash("svc")
	b := newActor(nil)
	w.Start(Service{Name: "svc", Actor: b, Inputs: []streams.Input{in}})
	w.Sleep(20 * time.Second)
	want(t, "after the crash", b.got, []string{"ready u1 again"})
}

func testDedupe(t *testing.T, w World) {
	subject := schemas.AgentSubject("t", "s", schemas.EventTurn)
	publish(t, w, subject, "same", turnBody("u1"))
	publish(t, w, subject, "same", turnBody("u2"))
	publish(t, w, subject, "other", turnBody("u3"))
	got := w.Stored(streams.Agent)
	want(t, "ids", ids(got), []string{"same", "other"})
	if got[0].Subject != streams.StoredSubject(subject) {
		t.Errorf("stored as %s", got[0].Subject)
	}
	w.Sleep(3 * time.Minute)
	publish(t, w, subject, "same", turnBody("u4"))
	if n := len(w.Stored(streams.Agent)); n != 3 {
		t.Errorf("%d messages after the window, want 3", n)
	}
}

func resultOut(turn, id string, expect uint64) schemas.Msg {
	return schemas.Msg{
		Kind: schemas.KindResult, Subject: schemas.ResultSubject("t", "s", turn), ID: id, ExpectSet: true, ExpectSeq: expect, Confirm: true,
		Result: &schemas.Result{
			Header: schemas.H(), Tenant: "t", Session: "s", Turn: turn, Job: "j", Attempt: 1, Status: schemas.StatusOK, Text: id,
		},
	}
}

func testExpect(t *testing.T, w World) {
	a := newActor(func(_ *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind == schemas.KindDone {
			out = append(out, resultOut("u1", in.Done.Job, 0))
		}
		return out
	})
	w.Start(Service{Name: "svc", Actor: a, Inputs: []streams.Input{{Stream: streams.Done, Policy: streams.NoAck}}})
	for _, job := range []string{"a", "b"} {
		publish(t, w, schemas.DoneSubject("c0", job), "", encoded(t, doneMsg(job)))
		w.Sleep(time.Second)
	}
	want(t, "messages", a.got, []string{"done a", "published a ", "done b", "published b conflict with " + strconv.FormatUint(w.Stored(streams.Result)[0].Seq, 10)})
	want(t, "results", ids(w.Stored(streams.Result)), []string{"a"})
}

func testDeadInput(t *testing.T, w World) {
	a := newActor(turnsToReady(0))
	w.Start(Service{
		Name: "svc", Actor: a, Inputs: []streams.Input{agentInput},
		OnBad: func(subject string, seq uint64, body []byte, err error) []schemas.Msg {
			p := planOut("bad")
			p.Plan.Reason = fmt.Sprintf("%s %d %d %v", subject, seq, len(body), err)
			return []schemas.Msg{p}
		},
	})
	subject := schemas.AgentSubject("acme", "s", schemas.EventTurn)
	publish(t, w, subject, "bad", []byte(`{"weir":{},"nonsense":1}`))
	publish(t, w, subject, "good", turnBody("u1"))
	w.Sleep(time.Second)
	want(t, "turns", a.got, []string{"turn u1"})
	want(t, "what OnBad added", ids(w.Stored(streams.Plan)), []string{"p-bad"})
	dead := w.Stored(streams.Dead)
	if len(dead) != 1 {
		t.Fatalf("%d dead letters", len(dead))
	}
	var d schemas.Dead
	if err := schemas.Decode(dead[0].Body, &d); err != nil {
		t.Fatal(err)
	}
	if dead[0].Subject != "dead.agent.acme" || !strings.Contains(d.Reason, "nonsense") || len(d.Body) == 0 || d.Seq == 0 || d.Session != "s" {
		t.Errorf("dead letter on %s: %+v", dead[0].Subject, d)
	}
	w.Crash("svc")
	b := newActor(nil)
	w.Start(Service{Name: "svc", Actor: b, Inputs: []streams.Input{agentInput}})
	w.Sleep(time.Minute)
	if len(b.got) != 0 || len(w.Stored(streams.Dead)) != 1 {
		t.Errorf("the unreadable message was not acknowledged: %v", b.got)
	}
}

func testDeadOutput(t *testing.T, w World) {
	a := newActor(func(_ *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind != schemas.KindTurn {
			return out
		}
		big := readyOut(in.Turn.Weir.Turn, schemas.MaxMessage)
		big.Confirm = true
		return append(out, big, planOut("after"))
	})
	w.Start(Service{Name: "svc", Actor: a, Inputs: []streams.Input{agentInput}})
	publish(t, w, schemas.AgentSubject("t", "s", schemas.EventTurn), "x", turnBody("u1"))
	w.Sleep(time.Second)
	if len(a.got) != 2 || !strings.Contains(a.got[1], "published r-u1") || !strings.Contains(a.got[1], "too large") {
		t.Errorf("messages %q", a.got)
	}
	want(t, "what stood behind it", ids(w.Stored(streams.Plan)), []string{"p-after"})
	if n := len(w.Stored(streams.Dead)); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	if n := len(w.Stored(streams.Ready)); n != 0 {
		t.Errorf("%d ready messages", n)
	}
}
