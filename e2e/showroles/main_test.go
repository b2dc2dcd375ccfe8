package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weir-dev/weir/e2e/show"
)

// Every figure that the command promises is promised once.
func TestFigures(t *testing.T) {
	if twice := show.Twice(parts()); len(twice) > 0 {
		t.Errorf("promised twice: %v", twice)
	}
	all := ""
	for _, p := range parts() {
		all += strings.Join(p.Figures, " ") + " "
	}
	for _, want := range []string{
		"flip.count", "flip.lost_turns", "flip.changed_tokens", "flip.blocks_lost", "flip.hit_rate_before", "flip.hit_rate_after", "flip.ms_p50", "flip.ms_p95",
		"flip.pause_ms_p95", "flipkill.lost_turns", "flipkill.stale_applied", "flipkill.phase_missing", "live_virtual.agreement", "replay.identical",
		"planner.tick_ms.256", "router.decision_us_p99", "nvml.quarantine_s",
	} {
		if !strings.Contains(all, want+" ") {
			t.Errorf("%s is not promised", want)
		}
	}
}

// A figure about right and wrong that misses its bar fails the command; one about speed
// says so and goes on.
func TestJudge(t *testing.T) {
	var b bytes.Buffer
	out := show.NewPrinter(&b)
	if err := atMost(out, "a", 1, "turns", 0, true, ""); err == nil {
		t.Error("a lost turn is no error")
	}
	if err := atMost(out, "b", 12, "ms", 10, false, "slow"); err != nil {
		t.Error(err)
	}
	if err := atMost(out, "c", 0, "turns", 0, true, ""); err != nil {
		t.Error(err)
	}
	want := `{"name":"a","value":1,"unit":"turns","bar":"at most 0","met":false}
{"name":"b","value":12,"unit":"ms","bar":"at most 10","met":false,"note":"slow"}
{"name":"c","value":0,"unit":"turns","bar":"at most 0","met":true}
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}
