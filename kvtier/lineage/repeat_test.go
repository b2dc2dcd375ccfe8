package lineage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestRepeat: tier nodes are told again of live branches, a bounded number at a time,
// and of those that ended no more. What they are told is what they were told before.
func TestRepeat(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.RepeatNS = 60 * int64(second) })
	const n = 300
	for i := range n {
		id := fmt.Sprint("u", i)
		w.turn("s", id, fmt.Sprint("b", i), strings.Repeat("a", 80), "")
		w.answer(id, "Hi", "|")
	}
	first := last(w)
	w.publish("s", schemas.EventBranchEnd, `{"v":1,"branch":"b5"}`)
	w.sent = nil
	snap, seqs := w.snapshot()
	for name, restart := range map[string]bool{"going on": false, "restarted": true} {
		if restart {
			w.restart(snap, seqs)
			// The nodes are known again from the next heartbeat on.
			w.step(&schemas.Msg{Kind: schemas.KindHeartbeat, Heartbeat: w.heartbeat()})
		}
		w.sent = nil
		w.now += 60 * second
		for tick := 0; tick < 3; tick++ { // three times 128 are enough
			w.now = max(w.now, w.l.nextRepeat()) + second
			before := len(w.sent)
			w.step(&schemas.Msg{Kind: schemas.KindTick})
			if got := len(w.sent) - before; got == 0 || got > maxRepeats {
				t.Fatalf("%s: %d messages in tick %d", name, got, tick)
			}
		}
		again := last(w)
		if len(again) != n-1 {
			t.Fatalf("%s: told again of %d branches, want %d", name, len(again), n-1)
		}
		for branch, said := range again {
			if said != first[branch] {
				t.Fatalf("%s: %s was told as\n%s, now as\n%s", name, branch, first[branch], said)
			}
		}
	}
}

// last is the last thing that was said of each branch.
func last(w *world) map[string]string {
	out := map[string]string{}
	for _, m := range w.sent {
		if m.Branch != nil {
			out[m.Branch.Branch] = fmt.Sprintf("%+v", *m.Branch)
		}
	}
	return out
}
