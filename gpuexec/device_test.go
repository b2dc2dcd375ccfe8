package gpuexec_test

import (
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/schemas"
)

// TestDeviceMedium: heartbeats and reports say what the engine keeps, also when the
// operation that told it was a drop that nobody waits for.
func TestDeviceMedium(t *testing.T) {
	h := newHost(t, nil)
	h.pass(ms)
	h.assign(1, schemas.RoleMixed)
	h.take(schemas.KindHeartbeat)
	kept := []schemas.Extent{{Key: "aa", N: 3}, {Key: "bb", N: 4}}
	h.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: 1 << 40, Device: &schemas.DeviceState{Kept: kept, Blocks: 7}}})
	var hb *schemas.Heartbeat
	var report *schemas.Report
	for range 10 {
		h.pass(500 * ms)
		for _, m := range h.take(schemas.KindHeartbeat) {
			hb = m.Heartbeat
		}
		for _, m := range h.take(schemas.KindReport) {
			report = m.Report
		}
	}
	if hb == nil || len(hb.Kept) != 2 || hb.Kept[1].N != 4 {
		t.Errorf("heartbeat %+v", hb)
	}
	if report == nil || report.DeviceBlocks != 7 {
		t.Errorf("report %+v", report)
	}
}

// TestHealth: before each report the devices' health is asked for; a change of fitness
// is reported at once.
func TestHealth(t *testing.T) {
	h := newHost(t, func(c *gpuexec.Config) { c.Health = true })
	h.pass(ms)
	h.assign(1, schemas.RoleMixed)
	asked := 0
	for range 10 {
		h.pass(500 * ms)
		for _, o := range h.asks {
			if o.Health != nil {
				asked++
			}
		}
		h.asks = nil
	}
	if asked != 2 && asked != 3 {
		t.Errorf("asked %d times in 5 s, want every 2 s", asked)
	}
	h.take(schemas.KindReport)
	say := func(unfit string) []schemas.Msg {
		h.step(schemas.Msg{Kind: schemas.KindOpDone, OpDone: &schemas.OpDone{ID: 1 << 41, Health: &schemas.HealthDone{
			GPUs: []schemas.GPU{{UUID: "GPU-a"}}, Unfit: unfit,
		}}})
		return h.take(schemas.KindReport)
	}
	if r := say("GPU-a: XID 79"); len(r) != 1 || r[0].Report.Unfit != "GPU-a: XID 79" || len(r[0].Report.GPUs) != 1 {
		t.Errorf("%+v", r)
	}
	if r := say("GPU-a: XID 79"); len(r) != 0 {
		t.Errorf("%d reports without news", len(r))
	}
	if r := say(""); len(r) != 1 || r[0].Report.Unfit != "" {
		t.Errorf("%+v", r)
	}
}
