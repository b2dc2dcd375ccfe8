package telemetry

import (
	"errors"
	"testing"

	"github.com/weir-dev/weir/kvtier"
	"github.com/weir-dev/weir/kvtier/retain"
)

func TestRetentionMetrics(t *testing.T) {
	m := NewMetrics("1")
	s, err := retain.Stats{Branches: 3}, error(nil)
	s.Classes[kvtier.ClassDead] = retain.Count{Bytes: 64, Evictions: 5}
	s.Classes[kvtier.ClassWaiting] = retain.Count{Bytes: 128, Hits: 7, Evictions: 2, Regrets: 1}
	if e := m.Retention(func() (retain.Stats, error) { return s, err }); e != nil {
		t.Fatal(e)
	}
	expect(t, scrape(t, m), map[string]float64{
		"weir_kv_retention_bytes{class=dead}": 64, "weir_kv_retention_bytes{class=waiting}": 128, "weir_kv_retention_branches{}": 3,
		"weir_kv_retention_blocks_total{class=dead,event=evicted}": 5, "weir_kv_retention_blocks_total{class=waiting,event=hit}": 7,
		"weir_kv_retention_blocks_total{class=waiting,event=regretted}": 1,
	})
	err = errors.New("closed")
	if _, found := scrape(t, m)["weir_kv_retention_branches{}"]; found {
		t.Error("a daemon that is closing has branches")
	}
}
