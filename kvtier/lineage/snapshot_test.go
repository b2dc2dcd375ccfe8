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
