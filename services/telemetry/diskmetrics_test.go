package telemetry

import (
	"testing"

	"github.com/weir-dev/weir/kvtier/disk"
	"github.com/weir-dev/weir/kvtier/hostmem"
)

func TestDiskMetrics(t *testing.T) {
	m := NewMetrics("1")
	st, ok := hostmem.DiskStats{Stats: disk.Stats{
		Used: 5, Capacity: 9, Writes: 3, Written: 192, Corrupt: 1, Off: "no room",
		Pools: []disk.PoolStats{{Pool: "p", BlockBytes: 64, Blocks: 2}, {Pool: "p", BlockBytes: 32, Blocks: 7}},
	}, Late: 4}, true
	if err := m.Disk(func() (hostmem.DiskStats, bool) { return st, ok }); err != nil {
		t.Fatal(err)
	}
	expect(t, scrape(t, m), map[string]float64{
		"weir_kv_disk_bytes{of=used}": 5, "weir_kv_disk_bytes{of=configured}": 9, "weir_kv_disk_off{}": 1, "weir_kv_disk_written_bytes_total{}": 192,
		"weir_kv_disk_blocks{block_bytes=64,pool=p}": 2, "weir_kv_disk_blocks{block_bytes=32,pool=p}": 7,
		"weir_kv_disk_events_total{event=late}": 4, "weir_kv_disk_events_total{event=corrupt}": 1,
	})
	ok = false
	if _, found := scrape(t, m)["weir_kv_disk_bytes{of=used}"]; found {
		t.Error("a disk that is not there has bytes")
	}
}
