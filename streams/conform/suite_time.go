package conform

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams"
)

func testTicks(t *testing.T, w World) {
	start := w.Now()
	a := newActor(nil)
	a.next = start + schemas.Time(time.Second)
	a.on = func(a *actor, now schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		switch len(a.ticks) {
		case 1:
			a.next = now // at once: must not spin
		case 4:
			a.next = schemas.Never
		}
		return out
	}
	w.Start(Service{Name: "svc", Actor: a})
	w.Sleep(time.Minute)
	if len(a.ticks) != 4 {
		t.Fatalf("%d ticks, want 4", len(a.ticks))
	}
	if d := a.ticks[0] - start; d < schemas.Time(time.Second) || d > schemas.Time(1100*time.Millisecond) {
		t.Errorf("the first tick came after %s", time.Duration(d))
	}
	for i := 1; i < len(a.ticks); i++ {
		if d := time.Duration(a.ticks[i] - a.ticks[i-1]); d < time.Millisecond {
			t.Errorf("tick %d came %s after the one before", i, d)
		}
	}
}

func testOps(t *testing.T, w World) {
	a := newActor(nil)
	a.on = func(a *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind == schemas.KindDone {
			for id := uint64(1); id <= 3; id++ {
				out = append(out, schemas.Msg{Kind: schemas.KindOp, Op: &schemas.Op{ID: id, Drop: &schemas.DropOp{}}})
			}
		}
		return out
	}
	w.Start(Service{
		Name: "svc", Actor: a, Inputs: []streams.Input{{Stream: streams.Done, Policy: streams.NoAck}},
		Local: func(op *schemas.Op) (schemas.OpDone, time.Duration) {
			// 1 takes longest; 3 is done at once.
			return schemas.OpDone{ID: op.ID, Err: fmt.Sprintf("e%d", op.ID)}, time.Duration(3-op.ID) * time.Second
		},
	})
	publish(t, w, schemas.DoneSubject("c0", "j"), "", encoded(t, doneMsg("j")))
	w.Sleep(10 * time.Second)
	want(t, "completions", a.got, []string{"done j", "op 3 e3", "op 2 e2", "op 1 e1"})
}

// counting counts turns in the state that snapshots keep.
func counting(a *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
	if in.Kind == schemas.KindTurn {
		a.count++
		out = append(out, planOut(in.Turn.Weir.Turn))
	}
	return out
}

var resumeInput = streams.Input{Stream: streams.Agent, Durable: "lineage", Policy: streams.AutoAck, Resume: true}

func testSnapshot(t *testing.T, w World) {
	a := newActor(counting)
	svc := Service{Name: "svc", Actor: a, Inputs: []streams.Input{resumeInput}, SnapshotEvery: 10 * time.Second}
	w.Start(svc)
	turns := func(from, to int) {
		for i := from; i < to; i++ {
			id := fmt.Sprintf("u%d", i)
			publish(t, w, schemas.AgentSubject("t", "s", schemas.EventTurn), "t/s/"+id, turnBody(id))
		}
	}
	turns(0, 5)
	w.Sleep(25 * time.Second)
	turns(5, 8) // after the last snapshot
	w.Sleep(time.Second)
	w.Crash("svc")
	turns(8, 10)
	b := newActor(counting)
	svc.Actor = b
	w.Start(svc)
	w.Sleep(5 * time.Second)
	if b.count != 10 {
		t.Errorf("the restored actor counts %d turns, want 10; it got %v", b.count, b.got)
	}
	want(t, "what came after the snapshot", strings.Join(b.got, ","), "turn u5,turn u6,turn u7,turn u8,turn u9")
	if n := len(w.Stored(streams.Plan)); n != 10 {
		t.Errorf("%d plans: repeats must be stored once", n)
	}
}

func testStop(t *testing.T, w World) {
	a := newActor(counting)
	svc := Service{Name: "svc", Actor: a, Inputs: []streams.Input{resumeInput}, SnapshotEvery: time.Hour}
	w.Start(svc)
	for i := range 3 {
		id := fmt.Sprintf("u%d", i)
		publish(t, w, schemas.AgentSubject("t", "s", schemas.EventTurn), "t/s/"+id, turnBody(id))
	}
	w.Sleep(time.Second)
	w.Stop("svc")
	b := newActor(counting)
	svc.Actor = b
	w.Start(svc)
	w.Sleep(time.Minute)
	if b.count != 3 || len(b.got) != 0 {
		t.Errorf("after a graceful stop: count %d, got %v", b.count, b.got)
	}
}

func testCore(t *testing.T, w World) {
	a := newActor(func(_ *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind == schemas.KindHeartbeat {
			m := planOut(fmt.Sprint(in.Heartbeat.Seq))
			m.Core = true // stored by the stream that captures it, unconfirmed
			out = append(out, m)
		}
		return out
	})
	w.Start(Service{Name: "svc", Actor: a, Inputs: []streams.Input{{Core: true, Filters: []string{"hb.c0.*", "hb.c1.*"}}}})
	w.Sleep(time.Second)
	for i, subject := range []string{"hb.c0.e1", "hb.c1.e2", "hb.c2.e3"} {
		w.PublishCore(subject, encoded(t, &schemas.Heartbeat{Header: schemas.H(), Executor: subject[6:], Seq: uint64(i + 1)}))
		w.Sleep(time.Second)
	}
	want(t, "heartbeats", a.got, []string{"heartbeat e1 seq 0", "heartbeat e2 seq 0"})
	if n := len(w.Stored(streams.Plan)); n != 2 {
		t.Errorf("%d plans stored", n)
	}
}

func testStarts(t *testing.T, w World) {
	report := func(exec string, running int) {
		publish(t, w, schemas.ReportSubject("c0", exec), "", encoded(t, &schemas.Report{Header: schemas.H(), Executor: exec, Running: running}))
	}
	done := func(job string) { publish(t, w, schemas.DoneSubject("c0", job), "", encoded(t, doneMsg(job))) }
	report("e1", 1)
	report("e2", 1)
	report("e1", 2)
	done("old1")
	done("old2")
	last, fresh, all := newActor(nil), newActor(nil), newActor(nil)
	w.Start(Service{Name: "last", Actor: last, Inputs: []streams.Input{
		{Stream: streams.Report, Filters: []string{"report.c0.*"}, Policy: streams.NoAck, Deliver: streams.DeliverLastPerSubject},
	}})
	w.Start(Service{Name: "fresh", Actor: fresh, Inputs: []streams.Input{{Stream: streams.Done, Policy: streams.NoAck, Deliver: streams.DeliverNew}}})
	w.Start(Service{Name: "all", Actor: all, Inputs: []streams.Input{{Stream: streams.Done, Policy: streams.NoAck}}})
	w.Sleep(time.Second)
	report("e3", 1)
	done("new")
	w.Sleep(time.Second)
	want(t, "last per subject", last.got, []string{"report e2", "report e1", "report e3"})
	want(t, "new", fresh.got, []string{"done new"})
	want(t, "all", all.got, []string{"done old1", "done old2", "done new"})
}

func testTrace(t *testing.T, w World) {
	tr := schemas.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", State: "k=v"}
	first := newActor(func(_ *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind == schemas.KindTurn {
			m := readyOut("u1", 0)
			m.Trace = tr
			out = append(out, m)
		}
		return out
	})
	second := newActor(func(_ *actor, _ schemas.Time, in *schemas.Msg, out []schemas.Msg) []schemas.Msg {
		if in.Kind == schemas.KindReady {
			m := planOut("p")
			m.Trace = in.Trace
			out = append(out, m)
		}
		return out
	})
	w.Start(Service{Name: "one", Actor: first, Inputs: []streams.Input{agentInput}})
	w.Start(Service{Name: "two", Actor: second, Inputs: []streams.Input{holdInput(true, 0)}})
	publish(t, w, schemas.AgentSubject("t", "s", schemas.EventTurn), "x", turnBody("u1"))
	w.Sleep(time.Second)
	got := w.Stored(streams.Plan)
	if len(got) != 1 || got[0].Trace != tr {
		t.Errorf("trace context behind two hops: %+v", got)
	}
}
