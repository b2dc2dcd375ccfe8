package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/retain"
)

// Retention shows what the order of eviction of a host's KV memory brings, by class.
// stats is hostmem.Daemon's Retention.
func (m *Metrics) Retention(stats func() (retain.Stats, error)) error {
	return m.reg.Register(&retention{
		stats:    stats,
		bytes:    desc("kv_retention_bytes", "Bytes of KV blocks by retention class; counted in the background, some seconds old.", "class"),
		blocks:   desc("kv_retention_blocks_total", "KV blocks by retention class: hit when their branch went on, evicted to make room, regretted when computed again within a minute.", "class", "event"),
		branches: desc("kv_retention_branches", "Branches that the KV memory knows of."),
	})
}

// retention asks the daemon at each scrape.
type retention struct {
	stats                   func() (retain.Stats, error)
	bytes, blocks, branches *prometheus.Desc
}

// Describe sends nothing, as for tierStats.
func (r *retention) Describe(chan<- *prometheus.Desc) {}

// Collect reads the counters. A daemon that is closing has none.
func (r *retention) Collect(ch chan<- prometheus.Metric) {
	s, err := r.stats()
	if err != nil {
		return
	}
	for c, n := range s.Classes {
		class := kvtier.Class(c).String()
		gauge(ch, r.bytes, float64(n.Bytes), class)
		counter(ch, r.blocks, n.Hits, class, "hit")
		counter(ch, r.blocks, n.Evictions, class, "evicted")
		counter(ch, r.blocks, n.Regrets, class, "regretted")
	}
	gauge(ch, r.branches, float64(s.Branches))
}
