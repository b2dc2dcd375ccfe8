package telemetry

import (
	"testing"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// TestPlannerMetrics: decisions, changes, mode, report age, health and stages are shown.
func TestPlannerMetrics(t *testing.T) {
	m := NewMetrics("1")
	p, err := m.Planner(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	p.now = func() time.Time { return now }
	change := schemas.RoleChange{Executor: "d0", From: schemas.RoleDecode, To: schemas.RolePrefill}
	plan := &schemas.Plan{
		ID: "1-1", Pool: "m", Mode: schemas.ModeAct, Rule: "gain", Inputs: schemas.PlanInput{Prefill: 2, Decode: 6, DemandP: .5, InFlight: 1},
		Candidates: []schemas.Candidate{{Prefill: 3, Decode: 5, Flips: 1, Value: 12}, {Prefill: 2, Decode: 6, Value: 10}}, Changes: []schemas.RoleChange{change},
	}
	p.Out(nil, &schemas.Msg{Kind: schemas.KindPlan, Plan: plan})
	flip := &schemas.Flip{ReturnNS: 1e6, HandNS: 2e8, VerifyNS: 1e6}
	say := func(r schemas.Report) { p.In(&schemas.Msg{Kind: schemas.KindReport, Report: &r}) }
	say(schemas.Report{Executor: "d0", Flips: 3, Flip: flip}) // its earlier life's
	say(schemas.Report{Executor: "d0", Flips: 4, Flip: flip})
	say(schemas.Report{Executor: "d0", Flips: 4, Flip: flip})
	say(schemas.Report{Executor: "d0", Flips: 5, Flip: &schemas.Flip{Back: "why"}})
	say(schemas.Report{Executor: "d1", Unfit: "XID 79"})
	p.In(&schemas.Msg{Kind: schemas.KindPublished, Err: schemas.ErrTextConflict})
	now = now.Add(4 * time.Second)
	want := map[string]float64{
		"weir_planner_decisions_total{pool=m,rule=gain}": 1, "weir_planner_changes_total{from=decode,to=prefill}": 1,
		"weir_planner_size{pool=m,role=prefill}": 2, "weir_planner_size{pool=m,role=decode}": 6, "weir_planner_demand_seconds_per_second{phase=prefill,pool=m}": .5,
		"weir_planner_flips_in_flight{pool=m}": 1, "weir_planner_predicted_gain_seconds{pool=m}": 2, "weir_planner_mode{mode=act}": 1, "weir_planner_mode{mode=paused}": 0,
		"weir_planner_report_age_seconds{}": 4, "weir_planner_quarantined{}": 1, "weir_planner_refused_total{}": 1,
		"weir_flip_stage_seconds{stage=hand_over}": 1, "weir_flips_rolled_back_total{}": 1,
	}
	expect(t, scrape(t, m), want)
	plan.Mode = schemas.ModeAdvise
	p.Out(nil, &schemas.Msg{Kind: schemas.KindPlan, Plan: plan})
	p.In(&schemas.Msg{Kind: schemas.KindMode, Mode: &schemas.PlannerMode{Mode: schemas.ModePaused}})
	expect(t, scrape(t, m), map[string]float64{
		"weir_planner_advised_changes_total{from=decode,to=prefill}": 1, "weir_planner_changes_total{from=decode,to=prefill}": 1, "weir_planner_mode{mode=paused}": 1,
	})
	var none *Planner
	none.In(&schemas.Msg{Kind: schemas.KindReport})
	none.Out(nil, &schemas.Msg{Kind: schemas.KindPlan})
}

// TestFlipTrace: a decision, its assignment, and the executor's role change with its
// stages are one trace.
func TestFlipTrace(t *testing.T) {
	w := newWorld(t, map[string]string{"OTEL_TRACES_SAMPLER": "always_on"})
	m := NewMetrics("1")
	p, err := m.Planner(w.tel.Tracer("planner"))
	if err != nil {
		t.Fatal(err)
	}
	f := NewFlips(w.tel.Tracer("executor"))
	p.Out(nil, &schemas.Msg{Kind: schemas.KindPlan, Plan: &schemas.Plan{ID: "1-1", Mode: schemas.ModeAct, Rule: "gain", Changes: []schemas.RoleChange{{Executor: "d0"}}}})
	a := &schemas.Msg{Kind: schemas.KindAssignment, Subject: schemas.RoleSubject("c0", "d0"), Seq: 9, Assignment: &schemas.Assignment{Role: schemas.RolePrefill, Plan: "1-1"}}
	p.Out(nil, a)
	f.In(a)
	at := time.Unix(1_800_000_000, 0)
	r := &schemas.Msg{Kind: schemas.KindReport, Report: &schemas.Report{Executor: "d0", Flips: 1, Flip: &schemas.Flip{
		Epoch: 9, From: schemas.RoleDecode, To: schemas.RolePrefill, Plan: "1-1", AtNS: at.UnixNano(), HandNS: 3e8, VerifyNS: 1e6,
	}}}
	f.Out(nil, &schemas.Msg{Kind: schemas.KindDone, Trace: schemas.Trace{Parent: parentOf("01")}, Done: &schemas.Done{Outcome: schemas.OutcomeReturned}})
	f.Out(nil, r)
	f.Out(nil, r) // reports repeat the last one
	flip := w.span(t, "flip")
	if len(flip.Links()) != 1 || flip.Links()[0].SpanContext.TraceID().String() != tid {
		t.Errorf("links %v, want the turn that was returned", flip.Links())
	}
	for name, parent := range map[string]string{"send role": "decide", "flip": "send role", "hand jobs over": "flip", "verify": "flip"} {
		s := w.span(t, name)
		if s.Parent().SpanID() != w.span(t, parent).SpanContext().SpanID() || s.SpanContext().TraceID() != flip.SpanContext().TraceID() {
			t.Errorf("%s is not below %s", name, parent)
		}
	}
	if d := flip.EndTime().Sub(flip.StartTime()); d != 301*time.Millisecond || len(w.names()) != 5 || attr(flip, "weir.plan") != "1-1" {
		t.Errorf("the role change took %s, plan %s, spans %q", d, attr(flip, "weir.plan"), w.names())
	}
}
