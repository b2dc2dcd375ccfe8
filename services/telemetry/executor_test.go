package telemetry

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// run plays a decode job on the hooks: take, open, prefill, decode twice, seal.
func run(e *Executor, m *schemas.Msg, seq int32) {
	e.In(m)
	now := time.Now()
	e.Op(&schemas.Op{Trace: m.Trace, Open: &schemas.OpenOp{Seq: seq}}, now, &schemas.OpDone{Open: &schemas.OpenDone{Cached: 64, Missing: 1}})
	e.Op(&schemas.Op{Trace: m.Trace, Prefill: &schemas.PrefillOp{Seqs: []int32{seq}}}, now, &schemas.OpDone{Prefill: &schemas.PrefillDone{Rows: []schemas.PrefillRow{{Computed: 64}}}})
	for range 2 {
		e.Op(&schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{9, seq}}}, now, &schemas.OpDone{
			Decode: &schemas.DecodeDone{Rows: []schemas.DecodeRow{{}, {Tokens: []int32{1, 2}}}},
		})
	}
	e.Op(&schemas.Op{Trace: m.Trace, Seal: &schemas.SealOp{Seq: seq}}, now, &schemas.OpDone{Seal: &schemas.SealDone{Sealed: 1}})
}

func resultMsg(trace schemas.Trace) *schemas.Msg {
	return &schemas.Msg{
		Kind: schemas.KindResult, Subject: schemas.ResultSubject("default", "s", "t"), Trace: trace,
		Result: &schemas.Result{Job: "j", Status: schemas.StatusOK, Usage: schemas.Usage{Completion: 4}},
	}
}

func TestExecutorSpans(t *testing.T) {
	w := newWorld(t, nil)
	e := NewExecutor(w.tel.Tracer("executor"))
	m := jobMsg(schemas.StageDecode, 1, schemas.Trace{Parent: parentOf("01")})
	run(e, m, 3)
	e.Out(m, resultMsg(m.Trace))
	e.Op(&schemas.Op{Drop: &schemas.DropOp{Seq: 3}}, time.Now(), &schemas.OpDone{})
	want := []string{
		"open", "prefill", "seal", "send result.{tenant}.{session}.{turn}", "decode", "process decode.{cell}.{executor}.{job}",
	}
	if got := w.names(); !slices.Equal(got, want) {
		t.Fatalf("spans %q, want %q", got, want)
	}
	p := w.span(t, want[5])
	for _, s := range w.rec.Ended()[:5] {
		if s.Parent().SpanID() != p.SpanContext().SpanID() {
			t.Errorf("%q is no child of the job", s.Name())
		}
	}
	d := w.span(t, "decode")
	if attr(d, "weir.ops") != "2" || attr(d, "weir.tokens") != "4" || attr(d, "weir.rows_max") != "2" {
		t.Errorf("decode: %v", d.Attributes())
	}
	if len(p.Events()) != 1 || p.Events()[0].Name != "first_token" || attr(p, "gen_ai.usage.output_tokens") != "4" {
		t.Errorf("events %v, attributes %v", p.Events(), p.Attributes())
	}
	if e.active.Load() != 0 || len(e.seqs) != 0 || len(e.byJob) != 0 {
		t.Errorf("%d jobs, %d sequences, %d names are kept", e.active.Load(), len(e.seqs), len(e.byJob))
	}
}

func TestExecutorAttempts(t *testing.T) {
	w := newWorld(t, nil)
	e := NewExecutor(w.tel.Tracer("executor"))
	second := jobMsg(schemas.StageDecode, 2, schemas.Trace{Parent: parentOf("01")})
	e.In(second)
	duplicate := jobMsg(schemas.StageDecode, 2, schemas.Trace{Parent: parentOf("01")})
	e.In(duplicate)
	if duplicate.Trace.Parent != parentOf("01") || e.active.Load() != 1 {
		t.Error("a job that came twice began a second span")
	}
	third := jobMsg(schemas.StageDecode, 3, schemas.Trace{Parent: parentOf("01")})
	e.In(third)
	if got := w.rec.Ended(); len(got) != 1 || attr(got[0], "weir.outcome") != "superseded" {
		t.Errorf("ended %q", w.names())
	}
	e.In(&schemas.Msg{Kind: schemas.KindCancel, Cancel: &schemas.Cancel{Job: "j", Attempt: 2}})
	if e.active.Load() != 1 {
		t.Error("a cancel of an older attempt ended the job")
	}
	e.In(&schemas.Msg{Kind: schemas.KindCancel, Cancel: &schemas.Cancel{Job: "j", Attempt: 3}})
	if got := w.rec.Ended(); len(got) != 2 || attr(got[1], "weir.outcome") != "cancelled" || e.active.Load() != 0 {
		t.Errorf("ended %q, active %d", w.names(), e.active.Load())
	}
}

func TestExecutorFailure(t *testing.T) {
	w := newWorld(t, nil)
	e := NewExecutor(w.tel.Tracer("executor"))
	m := jobMsg(schemas.StagePrefill, 1, schemas.Trace{Parent: parentOf("01")})
	e.In(m)
	e.Op(&schemas.Op{Trace: m.Trace, Open: &schemas.OpenOp{}}, time.Now(), &schemas.OpDone{Err: "secret text", Code: schemas.CodeEngine})
	e.Out(m, &schemas.Msg{Kind: schemas.KindDone, Trace: m.Trace, Done: &schemas.Done{Job: "j", Outcome: schemas.OutcomeFailed, Code: schemas.CodeEngine}})
	for _, name := range []string{"open", "process prefill.{cell}.{executor}.{job}"} {
		if s := w.span(t, name); s.Status().Description != schemas.CodeEngine {
			t.Errorf("%q has status %+v", name, s.Status())
		}
	}
}

func TestExecutorSealsAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	e := NewExecutor(w.tel.Tracer("executor"))
	m := jobMsg(schemas.StageDecode, 1, schemas.Trace{Parent: parentOf("01")})
	run(e, m, 0)
	for range 5 * sealSpans {
		e.Op(&schemas.Op{Seal: &schemas.SealOp{}}, time.Now(), &schemas.OpDone{})
	}
	e.Out(m, resultMsg(m.Trace))
	n := 0
	for _, name := range w.names() {
		if name == "seal" {
			n++
		}
	}
	if s := w.span(t, "process decode.{cell}.{executor}.{job}"); n != sealSpans || attr(s, "weir.seals") != "81" {
		t.Errorf("%d spans of exports, attributes %v", n, s.Attributes())
	}
}

// TestExecutorGoroutines: operations end on another goroutine than messages come.
func TestExecutorGoroutines(t *testing.T) {
	w := newWorld(t, nil)
	e := NewExecutor(w.tel.Tracer("executor"))
	var wg sync.WaitGroup
	for i := range int32(4) {
		wg.Go(func() {
			for range 50 {
				m := jobMsg(schemas.StageDecode, 1, schemas.Trace{Parent: parentOf("01")})
				m.Job.Ready.Job = "j" + string('0'+i)
				run(e, m, i)
				e.Out(m, resultMsg(m.Trace))
			}
		})
	}
	wg.Wait()
	if n := len(w.rec.Ended()); n != 4*50*6 || e.active.Load() != 0 {
		t.Errorf("%d spans, %d jobs open", n, e.active.Load())
	}
}

// BenchmarkUnsampled is what the hooks cost a turn that is not sampled: 1 job with
// 20 operations and 8 messages.
func BenchmarkUnsampled(b *testing.B) {
	tel, err := New(b.Context(), Config{TraceFile: b.TempDir() + "/f", Getenv: func(string) string { return "" }})
	if err != nil {
		b.Fatal(err)
	}
	e := NewExecutor(tel.Tracer("executor"))
	m := jobMsg(schemas.StageDecode, 1, schemas.Trace{Parent: parentOf("00")})
	out := resultMsg(m.Trace)
	op, done := &schemas.Op{Decode: &schemas.DecodeOp{Seqs: []int32{1, 2, 3}}}, &schemas.OpDone{}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		e.In(m)
		for range 20 {
			e.Op(op, now, done)
		}
		for range 8 {
			e.Out(m, out)
		}
	}
}

// BenchmarkSampled is what a sampled job costs its executor.
func BenchmarkSampled(b *testing.B) {
	tel, err := New(b.Context(), Config{TraceFile: b.TempDir() + "/f", Getenv: func(string) string { return "" }})
	if err != nil {
		b.Fatal(err)
	}
	e := NewExecutor(tel.Tracer("executor"))
	b.ReportAllocs()
	for b.Loop() {
		m := jobMsg(schemas.StageDecode, 1, schemas.Trace{Parent: parentOf("01")})
		run(e, m, 1)
		e.Out(m, resultMsg(m.Trace))
	}
}
