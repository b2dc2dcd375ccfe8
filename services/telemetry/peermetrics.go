package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-dev/weir/kvtier/peer"
)

// Gives shows what a node gives to other nodes. stats is peer.Server's Stats.
func (m *Metrics) Gives(stats func() peer.ServerStats) error {
	return m.reg.Register(&givesStats{
		stats:  stats,
		conns:  desc("kv_peer_server_connections", "Open connections of other nodes that get KV blocks from this one."),
		bytes:  desc("kv_peer_given_bytes_total", "Bytes of KV blocks given to other nodes."),
		events: desc("kv_peer_server_events_total", "What happened when other nodes asked for KV blocks.", "event"),
	})
}

type givesStats struct {
	stats                func() peer.ServerStats
	conns, bytes, events *prometheus.Desc
}

// Describe sends nothing: the values are read when they are collected.
func (g *givesStats) Describe(chan<- *prometheus.Desc) {}

// Collect reads the server's counters.
func (g *givesStats) Collect(ch chan<- prometheus.Metric) {
	st := g.stats()
	gauge(ch, g.conns, float64(st.Conns))
	counter(ch, g.bytes, st.Bytes)
	for _, e := range [...]struct {
		name string
		n    uint64
	}{
		{"request", st.Requests},
		{"given", st.Blocks},
		{"missing", st.Missing},
		{"refused", st.Refused},
		{"cut_off", st.CutOff},
		{"bad", st.Bad},
	} {
		counter(ch, g.events, e.n, e.name)
	}
}

// Takes shows what an executor gets from other nodes. stats is peer.Client's Stats.
func (m *Metrics) Takes(stats func() peer.Stats) error {
	return m.reg.Register(&takesStats{
		stats:  stats,
		bytes:  desc("kv_peer_brought_bytes_total", "Bytes of KV blocks that came from other nodes and were right."),
		blocks: desc("kv_peer_blocks_total", "KV blocks that other nodes were asked for, by what became of them.", "outcome"),
		nodes:  desc("kv_peer_failures_total", "Transfers that ended early because of the other node, and those not tried because it had just failed.", "event"),
	})
}

type takesStats struct {
	stats                func() peer.Stats
	bytes, blocks, nodes *prometheus.Desc
}

// Describe sends nothing: the values are read when they are collected.
func (k *takesStats) Describe(chan<- *prometheus.Desc) {}

// Collect reads the client's counters.
func (k *takesStats) Collect(ch chan<- prometheus.Metric) {
	st := k.stats()
	counter(ch, k.bytes, uint64(st.Bytes))
	for _, o := range [...]struct {
		name string
		n    int
	}{
		{"brought", st.Brought},
		{"present", st.Present},
		{"duplicate", st.Duplicate},
		{"joined", st.Joined},
		{"missing", st.Missing},
		{"corrupt", st.Corrupt},
		{"full", st.Full},
		{"lost", st.Lost},
	} {
		counter(ch, k.blocks, uint64(o.n), o.name)
	}
	counter(ch, k.nodes, st.Failures, "failed")
	counter(ch, k.nodes, st.Skipped, "skipped")
}
