package telemetry

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weir-dev/weir/kvtier/hostmem"
	"github.com/weir-dev/weir/kvtier/lineage"
	"github.com/weir-dev/weir/planner/route"
	"github.com/weir-dev/weir/schemas"
	"github.com/weir-dev/weir/streams/jsrun"
)

// scrape serves the metrics once and returns values by name{label=value,…}.
func scrape(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	p := expfmt.NewTextParser(model.UTF8Validation)
	fams, err := p.TextToMetricFamilies(rec.Body)
	if err != nil || rec.Code != 200 {
		t.Fatalf("status %d, %v", rec.Code, err)
	}
	out := map[string]float64{}
	for name, f := range fams {
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
		for _, x := range f.Metric {
			var ls []string
			for _, l := range x.Label {
				ls = append(ls, l.GetName()+"="+l.GetValue())
			}
			k := name + "{" + strings.Join(ls, ",") + "}"
			switch {
			case x.Counter != nil:
				out[k] = x.Counter.GetValue()
			case x.Gauge != nil:
				out[k] = x.Gauge.GetValue()
			case x.Histogram != nil:
				out[k] = float64(x.Histogram.GetSampleCount())
			}
		}
	}
	return out
}

func expect(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%s is %g (there: %v), want %g", k, g, ok, v)
		}
	}
}

func TestTurnMetrics(t *testing.T) {
	m := NewMetrics("9.9")
	m.Turn(&schemas.Result{Status: schemas.StatusOK, Usage: schemas.Usage{Prompt: 10, Cached: 4, Completion: 3}, Timing: schemas.Timing{TTFTNS: 5e6, TotalNS: 9e6}})
	m.Turn(&schemas.Result{Status: schemas.StatusFailed, Failure: &schemas.Failure{Code: schemas.CodePoison}, Timing: schemas.Timing{TotalNS: 9e6}})
	for _, odd := range []*schemas.Failure{{Code: "made up"}, {}, nil} {
		m.Turn(&schemas.Result{Status: schemas.StatusFailed, Failure: odd, Usage: schemas.Usage{Prompt: -1}})
	}
	got := scrape(t, m)
	expect(t, got, map[string]float64{
		"weir_turns_total{code=,status=ok}": 1, "weir_turns_total{code=poison_turn,status=failed}": 1, "weir_turns_total{code=other,status=failed}": 3,
		"weir_turn_tokens_total{kind=prompt}": 10, "weir_turn_tokens_total{kind=cached}": 4, "weir_turn_tokens_total{kind=completion}": 3,
		"weir_turn_time_to_first_token_seconds{}": 1, "weir_turn_duration_seconds{}": 2,
	})
	found := false
	for k := range got {
		found = found || strings.HasPrefix(k, "weir_build_info{") && strings.Contains(k, "version=9.9")
	}
	if !found || got["process_start_time_seconds{}"] == 0 {
		t.Error("build or process metrics are missing")
	}
}

func TestActorAndRunnerMetrics(t *testing.T) {
	m := NewMetrics("1")
	r := route.New(route.Config{Cell: "c0", Epoch: 1})
	r.Step(1, readyMsg(schemas.Trace{}), nil)
	m.Actor("router", r)
	m.Actor("lineage", lineage.New(lineage.Config{Cell: "c0"}))
	var s jsrun.Stats
	s.In.Add(3)
	s.Held.Add(2)
	m.Runner("router", &s)
	m.Runner("router", &s) // a router that got its lease again
	expect(t, scrape(t, m), map[string]float64{
		"weir_router_turns{state=waiting}": 1, "weir_router_events_total{event=executor_death}": 0, "weir_lineage_sessions{}": 0,
		"weir_lineage_rewrites_total{cause=reasoning}": 0, "weir_lineage_events_total{how=cycle}": 0,
		"weir_bus_messages_in_total{service=router}": 3, "weir_bus_inputs_held{service=router}": 2,
	})
}

func TestFleetMetrics(t *testing.T) {
	m := NewMetrics("1")
	now := time.Unix(100, 0)
	f := newFleet(func() time.Time { return now })
	m.reg.MustRegister(f)
	f.beat(&schemas.Heartbeat{
		Executor: "d0", Role: schemas.RoleDecode, Slots: 8,
		Held: []schemas.Held{{Job: "a", Stage: schemas.StageDecode}, {Job: "b", Stage: schemas.StagePrefill}},
	})
	f.reported(&schemas.Report{Executor: "d0", AtNS: 10e9, BusyNS: 1e9, DecodeTokens: 5, SlotsFree: 7, FlipNS: 5e8})
	f.reported(&schemas.Report{Executor: "d0", AtNS: 12e9, BusyNS: 2e9, DecodeTokens: 9, SlotsFree: 6, FlipNS: 5e8})
	f.noticed(&schemas.KVNotice{Node: "n0", Stored: make([]schemas.Extent, 3), Evicted: make([]schemas.Extent, 1)})
	expect(t, scrape(t, m), map[string]float64{
		"weir_executor_busy_ratio{executor=d0}": 0.5, "weir_executor_busy_seconds_total{executor=d0}": 2,
		"weir_executor_tokens_total{executor=d0,kind=decode}": 9, "weir_executor_flip_seconds{executor=d0}": 0.5,
		"weir_executor_decode_credit{executor=d0}": 7, "weir_executor_jobs{executor=d0,stage=prefill}": 1,
		"weir_executor_role{executor=d0,role=decode}": 1, "weir_executor_slots{executor=d0,state=free}": 6,
		"weir_kv_extents_total{change=stored,node=n0}": 3,
	})
	now = now.Add(fleetStale + time.Second)
	if _, ok := scrape(t, m)["weir_executor_busy_ratio{executor=d0}"]; ok {
		t.Error("an executor that is silent is still shown")
	}
	f.beat(&schemas.Heartbeat{Executor: "d0", Dead: true})
	if len(f.seen) != 0 {
		t.Error("a dead executor is still known")
	}
}

func TestFleetIsBounded(t *testing.T) {
	now := time.Unix(100, 0)
	f := newFleet(func() time.Time { return now })
	for i := range 2 * fleetMax {
		f.reported(&schemas.Report{Executor: string(rune('a'+i%26)) + strings.Repeat("x", i/26), AtNS: 1})
	}
	if len(f.seen) != fleetMax {
		t.Errorf("%d executors", len(f.seen))
	}
	now = now.Add(time.Hour)
	f.reported(&schemas.Report{Executor: "fresh", AtNS: 1})
	if len(f.seen) != 1 {
		t.Errorf("%d executors after an hour", len(f.seen))
	}
}

func TestTierMetrics(t *testing.T) {
	m := NewMetrics("1")
	var err error
	pools := []hostmem.PoolStats{{Pool: "p", Free: 1, Reserved: 2, Sealed: 3, Leased: 4, Evictions: 5, BlockBytes: 64}}
	if e := m.Tier(func() ([]hostmem.PoolStats, error) { return pools, err }); e != nil {
		t.Fatal(e)
	}
	expect(t, scrape(t, m), map[string]float64{
		"weir_kv_slots{pool=p,state=free}": 1, "weir_kv_slots{pool=p,state=sealed}": 3, "weir_kv_events_total{event=evicted,pool=p}": 5,
		"weir_kv_bytes{of=slot,pool=p}": 64,
	})
	err = hostmem.ErrClosed
	if _, ok := scrape(t, m)["weir_kv_slots{pool=p,state=free}"]; ok {
		t.Error("a daemon that is closing has slots")
	}
}
