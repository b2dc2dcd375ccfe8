package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-dev/weir/kvtier/hostmem"
)

// Tier shows the shared KV memory of a host. stats is hostmem.Daemon's Stats.
func (m *Metrics) Tier(stats func() ([]hostmem.PoolStats, error)) error {
	return m.reg.Register(&tierStats{
		stats:   stats,
		slots:   desc("kv_slots", "Slots of the shared KV memory by state; leased ones are sealed too.", "pool", "state"),
		bytes:   desc("kv_bytes", "Size of a slot and of the file of a pool.", "pool", "of"),
		clients: desc("kv_clients", "Processes that map a pool.", "pool"),
		waiting: desc("kv_reservations_waiting", "Reservations that wait for room.", "pool"),
		events:  desc("kv_events_total", "What happened to slots since this daemon started.", "pool", "event"),
	})
}

// tierStats asks the daemon at each scrape; it answers within a loop turn.
type tierStats struct {
	stats                                  func() ([]hostmem.PoolStats, error)
	slots, bytes, clients, waiting, events *prometheus.Desc
}

// Describe sends nothing: pools come and go.
func (t *tierStats) Describe(chan<- *prometheus.Desc) {}

// Collect reads the pools' counters. A daemon that is closing has none.
func (t *tierStats) Collect(ch chan<- prometheus.Metric) {
	pools, err := t.stats()
	if err != nil {
		return
	}
	for i := range pools {
		p := &pools[i]
		for _, s := range [...]struct {
			state string
			n     int
		}{{"free", p.Free}, {"reserved", p.Reserved}, {"sealed", p.Sealed}, {"leased", p.Leased}} {
			gauge(ch, t.slots, float64(s.n), p.Pool, s.state)
		}
		gauge(ch, t.bytes, float64(p.BlockBytes), p.Pool, "slot")
		gauge(ch, t.bytes, float64(p.FileBytes), p.Pool, "file")
		gauge(ch, t.clients, float64(p.Clients), p.Pool)
		gauge(ch, t.waiting, float64(p.Waiting), p.Pool)
		for _, e := range [...]struct {
			name string
			n    uint64
		}{
			{"evicted", p.Evictions},
			{"sealed_twice", p.Duplicates},
			{"client_ended", p.Reclaimed},
			{"corrupt", p.Corrupt},
			{"refused", p.Refused},
			{"notice_dropped", p.Dropped},
		} {
			counter(ch, t.events, e.n, p.Pool, e.name)
		}
	}
}
