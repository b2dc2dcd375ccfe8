package infer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-dev/weir/kvtier/branch"
)

// awkward reads one JSON object of a file of traces/awkward.
func awkward(t *testing.T, name string, line int, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(sharedDir(t), "traces", "awkward", name))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	for range line + 1 {
		if err := d.Decode(into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// place replays requests whose first lead blocks are system prompt and tools.
func place(lead int, requests ...wekaRequest) ([]*call, []branch.Placement) {
	s := wekaSession{BlockSize: 64, ToolTokens: lead * 64, Requests: requests}
	calls := s.stream()
	return calls, replay(calls, branch.Options{})
}

type pair struct {
	Common                int `json:"common_prefix_blocks"`
	Before, After, After2 wekaRequest
}

// TestZeroOutput: an answer of no tokens changes nothing; the branch goes on.
func TestZeroOutput(t *testing.T) {
	var row struct{ Prev, Record, Next wekaRequest }
	awkward(t, "01_weka_zero_output.jsonl", 1, &row)
	_, p := place(247, row.Prev, row.Record, row.Next)
	if p[1].Kind != branch.Continue || p[2].Kind != branch.Continue || p[2].Branch != p[0].Branch {
		t.Errorf("%+v", p)
	}
}

// TestRevived: a block that a compaction superseded and a later request names again
// is live again, on the same branch.
func TestRevived(t *testing.T) {
	var row pair
	awkward(t, "03_weka_compaction.json", 0, &row)
	calls, p := place(row.Common, row.Before, row.After, row.After2)
	if p[1].Kind != branch.Compaction || p[1].Branch != p[0].Branch || p[1].KeptSize != 246*64 || p[1].DroppedSize != (calls[0].blocks-246)*64 {
		t.Errorf("compaction: %+v", p[1])
	}
	back := 0
	for _, it := range calls[2].items[:p[2].Revived] {
		back += it.Size
	}
	if p[2].Branch != p[0].Branch || back != (246+132)*64 {
		t.Errorf("return: %+v, %d tokens are live again", p[2], back)
	}
}

// TestSameLength: contents are compared, not lengths.
func TestSameLength(t *testing.T) {
	var row pair
	awkward(t, "04_weka_same_length_rewrite.json", 0, &row)
	calls, p := place(row.Common, row.Before, row.After)
	if p[1].Kind != branch.Rewrite || p[1].Branch != p[0].Branch || p[1].DroppedSize != (calls[0].blocks-237)*64 {
		t.Errorf("%+v", p[1])
	}
}

// TestParallelSubAgents: sub-agents that are launched together and have no durations
// each get a branch, and so does the parent that goes on meanwhile.
func TestParallelSubAgents(t *testing.T) {
	var row struct {
		Prev   wekaRequest   `json:"prev_parent"`
		Marker wekaRequest   `json:"marker"`
		Next   []wekaRequest `json:"next_entries"`
	}
	awkward(t, "06_weka_async_subagent_null_duration.json", 0, &row)
	calls, p := place(237, append([]wekaRequest{row.Prev, row.Marker}, row.Next...)...)
	branches := map[int]map[string]bool{}
	owners := map[string]int{}
	for i, c := range calls {
		if branches[c.line] == nil {
			branches[c.line] = map[string]bool{}
		}
		branches[c.line][p[i].Branch] = true
		if owner, ok := owners[p[i].Branch]; ok && owner != c.line {
			t.Errorf("agents %d and %d share branch %s", owner, c.line, p[i].Branch)
		}
		owners[p[i].Branch] = c.line
	}
	for line, b := range branches {
		if len(b) != 1 {
			t.Errorf("agent %d is on branches %v", line, b)
		}
	}
	t.Logf("%d calls of %d agents", len(calls), len(branches))
}

// TestModelSwitch: contexts of two models share no block; nothing is said to be kept.
func TestModelSwitch(t *testing.T) {
	var row pair
	awkward(t, "07_weka_model_switch.json", 0, &row)
	calls, p := place(148, row.Before, row.After)
	if p[1].Kept != 0 || !p[1].New {
		t.Errorf("%+v", p[1])
	}
	if l := labels(calls); l[1].kind != unknown {
		t.Errorf("labelled %q, though block ids say nothing across models", l[1].kind)
	}
}
