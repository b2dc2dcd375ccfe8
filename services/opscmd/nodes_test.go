package opscmd

import (
	"testing"

	"github.com/weir-dev/weir/services/tier"
)

// TestNodeWords: classes stand in the order in which they go, and regrets are summed.
func TestNodeWords(t *testing.T) {
	got := nodeWords(&tier.StatsReply{Order: "weir", Branches: 3, Classes: map[string]tier.ClassLine{
		"waiting": {Bytes: 5 << 20, Regrets: 2}, "dead": {Bytes: 1 << 20, Regrets: 1}, "running": {Bytes: 7 << 20},
	}})
	want := "order weir, 3 branches, dead 1 MiB, idle 0 MiB, waiting 5 MiB, running 7 MiB, 3 blocks evicted and asked again within a minute"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
