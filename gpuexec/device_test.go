package gpuexec_test

import (
	"testing"

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
