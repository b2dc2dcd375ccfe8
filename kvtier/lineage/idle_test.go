package lineage

import (
	"bytes"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestIdleSessions: a session without turns is forgotten after its time, with what the
// snapshot holds of it; one with turns stays, and so does all without a bound.
func TestIdleSessions(t *testing.T) {
	const keep = 1_000_000_000_000
	for _, bound := range []int64{keep, 0} {
		w := newWorld(t, func(c *Config) { c.KeepNS = bound })
		w.turn("old", "t1", "main", "canary of the old session", "")
		w.answer("t1", "first", "|")
		w.turn("works", "t2", "main", "canary of work", "")
		start := w.now
		for w.now < start+keep+keep/sweepParts+10 {
			w.now += keep / 20
			if w.l.Next() <= w.now {
				w.tick()
			}
			if w.now > start+keep/2 && w.l.sessions[sessionKey("t", "new")] == nil {
				w.turn("new", "t3", "main", "canary of the new session", "")
				w.answer("t3", "third", "|")
			}
		}
		snap, _ := w.snapshot()
		if got := bytes.Contains(snap, []byte("old session")); got != (bound == 0) {
			t.Errorf("with a bound of %d the old session is in the snapshot: %v", bound, got)
		}
		if !bytes.Contains(snap, []byte("new session")) || w.l.sessions[sessionKey("t", "works")] == nil {
			t.Errorf("with a bound of %d a session was forgotten too early", bound)
		}
		if bound == 0 && w.l.nextSweep() != schemas.Never {
			t.Error("without a bound there is nothing to look for")
		}
	}
}
