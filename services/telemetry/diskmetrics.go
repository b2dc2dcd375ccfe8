package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-dev/weir/kvtier/hostmem"
)

// Disk shows the disk below the KV memory of a host. stats is hostmem.Daemon's Disk.
func (m *Metrics) Disk(stats func() (hostmem.DiskStats, bool)) error {
	return m.reg.Register(&diskStats{
		stats:   stats,
		bytes:   desc("kv_disk_bytes", "Bytes of the disk below the KV memory: used by its files, and configured.", "of"),
		blocks:  desc("kv_disk_blocks", "Blocks on that disk.", "pool", "block_bytes"),
		off:     desc("kv_disk_off", "1 when writing to that disk was given up after an error."),
		written: desc("kv_disk_written_bytes_total", "Bytes of blocks written to that disk since this daemon started."),
		events:  desc("kv_disk_events_total", "What happened to blocks on that disk since this daemon started.", "event"),
	})
}

type diskStats struct {
	stats                               func() (hostmem.DiskStats, bool)
	bytes, blocks, off, written, events *prometheus.Desc
}

// Describe sends nothing: pools come and go.
func (d *diskStats) Describe(chan<- *prometheus.Desc) {}

// Collect reads the disk's counters.
func (d *diskStats) Collect(ch chan<- prometheus.Metric) {
	st, ok := d.stats()
	if !ok {
		return
	}
	gauge(ch, d.bytes, float64(st.Used), "used")
	gauge(ch, d.bytes, float64(st.Capacity), "configured")
	off := 0.0
	if st.Off != "" {
		off = 1
	}
	gauge(ch, d.off, off)
	counter(ch, d.written, st.Written)
	for _, p := range st.Pools {
		gauge(ch, d.blocks, float64(p.Blocks), p.Pool, strconv.FormatInt(p.BlockBytes, 10))
	}
	for _, e := range [...]struct {
		name string
		n    uint64
	}{
		{"written", st.Writes},
		{"late", st.Late},
		{"offered", st.Hits},
		{"replaced", st.Replaced},
		{"corrupt", st.Corrupt},
		{"torn", st.Torn},
		{"erased", st.Erased},
	} {
		counter(ch, d.events, e.n, e.name)
	}
}
