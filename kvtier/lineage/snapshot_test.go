package lineage

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas"
)

// TestSnapshotFits: what may be remembered by default fits into a snapshot, with
// text that escapes badly. A lineage that cannot be saved forgets everything when
// it starts again, and keeps AGENT from being purged.
func TestSnapshotFits(t *testing.T) {
	const share, maxState = 64, 256 << 20 // of the bound; jsrun.MaxState
	l := New(Config{Cell: "c0"})
	text := strings.Repeat("if a[\"x\"] {\n\treturn 세션\n}\n", 1000)
	message, err := json.Marshal(map[string]string{"role": "user", "content": text})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; l.tokens < l.cfg.MaxTokens/share; i++ {
		log := &logbook{Tokens: make(schemas.Tokens, len(text)/4)}
		for j := range log.Tokens {
			log.Tokens[j] = int32(100_000 + j)
		}
		s := l.session("t", fmt.Sprint("s", i), 1)
		b := &branch{id: "main", tail: "t0"}
		l.setLog(s, b, log)
		l.setHist(s, b, []*entry{s.entry(nil, new(callIndex), message, nil)})
		s.branches["main"] = b
		s.turns["t0"] = &turn{id: "t0", sess: s, on: "main", state: turnEnded}
		s.order = []string{"t0"}
	}
	b, err := l.Snapshot(nil)
	if err != nil || len(b) > maxState/share {
		t.Errorf("%d tokens take %d bytes, %d are allowed; %v", l.tokens, len(b), maxState/share, err)
	}
}

// TestSnapshotOfSmallTurnsFits: many small turns and branches fit, too: ids and digests
// of them, not messages or tokens, are what such a snapshot consists of.
func TestSnapshotOfSmallTurnsFits(t *testing.T) {
	const maxBytes = 1 << 20
	w := newWorld(t, func(c *Config) { c.MaxBytes = maxBytes })
	for i := range 2000 {
		s, id := fmt.Sprintf("session-%d", i%200), fmt.Sprintf("turn-with-a-uuid-01234567-89ab-cdef-%d", i)
		w.chat(s, id, user(fmt.Sprint(i)))
		w.answer(id, "Hi", "|")
	}
	b, _ := w.snapshot()
	if len(b) > maxBytes*3/2 || w.l.counts.Forgotten == 0 {
		t.Errorf("a snapshot of %d bytes where %d are counted and %d are allowed", len(b), w.l.bytes, maxBytes)
	}
	l := New(w.cfg)
	if err := l.Restore(b); err != nil || l.bytes != w.l.bytes || l.tokens != w.l.tokens {
		t.Errorf("%d bytes and %d tokens after a restore, %d and %d before; %v", l.bytes, l.tokens, w.l.bytes, w.l.tokens, err)
	}
	for _, s := range w.l.sessions {
		w.l.drop(s)
	}
	if w.l.bytes != 0 || w.l.tokens != 0 {
		t.Errorf("%d bytes and %d tokens are left of nothing", w.l.bytes, w.l.tokens)
	}
}
