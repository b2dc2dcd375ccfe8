package telemetry

import (
	"testing"

	"github.com/weir-dev/weir/kvtier/peer"
)

func TestPeerMetrics(t *testing.T) {
	m := NewMetrics("1")
	if err := m.Gives(func() peer.ServerStats { return peer.ServerStats{Conns: 2, Bytes: 640, Blocks: 10, CutOff: 1} }); err != nil {
		t.Fatal(err)
	}
	if err := m.Takes(func() peer.Stats {
		return peer.Stats{Result: peer.Result{Brought: 3, Corrupt: 1, Bytes: 192}, Failures: 4, Skipped: 5}
	}); err != nil {
		t.Fatal(err)
	}
	expect(t, scrape(t, m), map[string]float64{
		"weir_kv_peer_server_connections{}": 2, "weir_kv_peer_given_bytes_total{}": 640, "weir_kv_peer_server_events_total{event=given}": 10,
		"weir_kv_peer_server_events_total{event=cut_off}": 1, "weir_kv_peer_brought_bytes_total{}": 192, "weir_kv_peer_blocks_total{outcome=brought}": 3,
		"weir_kv_peer_blocks_total{outcome=corrupt}": 1, "weir_kv_peer_failures_total{event=failed}": 4, "weir_kv_peer_failures_total{event=skipped}": 5,
	})
}
