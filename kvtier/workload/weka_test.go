package workload_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-dev/weir/kvtier/workload"
)

// shared finds a file in the folder shared beside the repository.
func shared(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for up := filepath.Dir(dir); up != dir; dir, up = up, filepath.Dir(up) {
		if p := filepath.Join(dir, "shared", "traces", name); exists(p) {
			return p
		}
	}
	t.Skipf("shared/traces/%s is not beside the repository", name)
	return ""
}

func exists(p string) bool { _, err := os.Stat(p); return err == nil }

const session = `{"id":"trace_0001","block_size":64,"hash_id_scope":"local","_source":"x","requests":[` +
	`{"t":0,"type":"n","in":130,"out":10,"stop":"tool_use","api_time":2.5,"think_time":0.0,"hash_runs":[[1,2]]},` +
	`{"t":1,"type":"subagent","agent_id":"a","duration_ms":null,"requests":[{"t":0.0,"in":1,"out":1}]},` +
	`{"t":9,"type":"s","in":200,"out":0,"stop":"","hash_runs":[[1,2],[7,1]]},` +
	`{"t":12,"type":"s","in":200,"out":3,"stop":"end_turn","api_time":1,"hash_runs":[[1,2],[7,1]]}]}`

func TestReadWeka(t *testing.T) {
	want := []workload.Recording{{ID: "trace_0001", SubAgents: 1, Calls: []workload.Recorded{
		{Took: 2500, In: 130, Out: 10, Prompt: []workload.Run{{From: 1, N: 2}}, Tools: true},
		{Took: 6000, Think: 6500, In: 200, Prompt: []workload.Run{{From: 1, N: 2}, {From: 7, N: 1}}, Tools: true},
		{Took: 1000, Think: 0, In: 200, Out: 3, Prompt: []workload.Run{{From: 1, N: 2}, {From: 7, N: 1}}},
	}}}
	packed := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	ids := strings.NewReplacer(`"hash_runs":[[1,2]]`, `"hash_ids":[1,2,3]`, `"hash_runs":[[1,2],[7,1]]`, `"hash_ids":[1,2,7]`).Replace(session)
	for name, text := range map[string]string{
		"lines": session + "\n\n", "no end": session, "gzip": packed(session), "an empty session": `{"id":"e","block_size":64,"requests":[]}` + "\n" + session,
		"ids, one of a partial block": ids,
	} {
		got, skipped, err := workload.ReadWeka("f", strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if skipped.SubAgents != 1 || skipped.NoTook != 1 || skipped.NoThink != 2 {
			t.Errorf("%s: skipped %+v", name, skipped)
		}
	}
}

func TestReadWekaRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"empty":          {"", "no session"},
		"no JSON":        {"TIMESTAMP,Context\n", "file:1"},
		"another format": {session + "\n" + `{"timestamp":1,"hash_ids":[1]}`, `file:2: no "id"`},
		"cut":            {session[:len(session)-9], "file:1"},
		"twice":          {session + "\n" + session, "stands in line 1 too"},
		"block size":     {strings.Replace(session, `:64,`, `:512,`, 1), "block_size is 512"},
		"scope":          {strings.Replace(session, `"local"`, `"shared"`, 1), "hash_id_scope"},
		"too few ids":    {strings.Replace(session, `[[1,2]]`, `[[1,1]]`, 1), "request 0: hash_ids: 1 ids for 130 tokens"},
		"negative run":   {strings.Replace(session, `[[1,2]]`, `[[1,-2]]`, 1), "hash_runs[0]"},
		"huge run":       {strings.Replace(session, `[[1,2]]`, `[[1,9007199254740993]]`, 1), "hash_runs[0]"},
		"negative in":    {strings.Replace(session, `"in":130`, `"in":-130`, 1), "in, out: -130"},
		"negative wait":  {strings.Replace(session, `"think_time":0.0`, `"think_time":-1`, 1), "think_time: -1"},
		"no time":        {strings.Replace(session, `"t":0,`, ``, 1), "t: the start is missing"},
		"no tokens":      {strings.Replace(session, `"in":130,`, ``, 1), "the number of tokens is missing"},
		"broken gzip":    {"\x1f\x8bxxxxxxxxxx", "file"},
	} {
		_, _, err := workload.ReadWeka("file", strings.NewReader(tt.text))
		if !errors.Is(err, workload.ErrTrace) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tt.want)
		}
	}
}

// TestAwkward reads the awkward rows of the WEKA traces as sessions of their own.
func TestAwkward(t *testing.T) {
	dir := filepath.Dir(shared(t, "awkward/README.md"))
	for _, name := range []string{"01_weka_zero_output.jsonl", "02_weka_missing_timing.jsonl", "03_weka_compaction.json", "04_weka_same_length_rewrite.json", "07_weka_model_switch.json"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		in := json.NewDecoder(bufio.NewReader(f))
		for i := 0; in.More(); i++ {
			var row map[string]json.RawMessage
			if err := in.Decode(&row); err != nil {
				t.Fatal(name, err)
			}
			var calls []string
			for _, k := range []string{"prev", "record", "next", "before", "after", "after2"} {
				if v := row[k]; len(v) > 0 && string(v) != "null" {
					var line bytes.Buffer
					if err := json.Compact(&line, v); err != nil {
						t.Fatal(name, err)
					}
					calls = append(calls, line.String())
				}
			}
			text := fmt.Sprintf(`{"id":"trace_%04d","block_size":64,"requests":[%s]}`, i, strings.Join(calls, ","))
			recs, _, err := workload.ReadWeka(name, strings.NewReader(text))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			p, err := workload.NewPlan(name, recs, workload.PlanOptions{Live: 1, Calls: len(calls)})
			if err != nil {
				t.Fatal(name, err)
			}
			if _, err := p.Schedule(recs); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"09_mooncake_fully_cached.jsonl", "12_empty_session_file.jsonl", "14_mooncake_hash_vs_length_mismatch.jsonl", "16_bailian_context_not_append_only.jsonl", "17_servegen_offline_no_timestamp.jsonl", "19_burstgpt_failed.csv"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := workload.ReadWeka(name, f); !errors.Is(err, workload.ErrTrace) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzReadWeka(f *testing.F) {
	f.Add([]byte(session))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, b []byte) {
		recs, _, err := workload.ReadWeka("f", bytes.NewReader(b))
		if err != nil {
			return
		}
		p, err := workload.NewPlan("f", recs, workload.PlanOptions{Live: 2, Calls: 20, MaxContext: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Schedule(recs); err != nil {
			t.Fatalf("a trace that was read cannot be scheduled: %v", err)
		}
	})
}

// TestPlan: as many sessions run at any time, each from where the plan says, and what an
// agent says follows from how its answers ended.
func TestPlan(t *testing.T) {
	var recs []workload.Recording
	for i := range 6 {
		r := workload.Recording{ID: fmt.Sprintf("trace_%04d", i)}
		for k := range 3 + i {
			r.Calls = append(r.Calls, workload.Recorded{
				Took: 1000, Think: int64(k) * 40_000, In: int32(64 * (k + 1)), Out: 100, Prompt: []workload.Run{{From: 1, N: int32(k + 1)}}, Tools: k%2 == 0,
			})
		}
		recs = append(recs, r)
	}
	recs = append(recs, workload.Recording{ID: "trace_0008", Calls: []workload.Recorded{{In: 300_000, Took: 1, Prompt: []workload.Run{{From: 1, N: 300_000 / 64}}}}})
	o := workload.PlanOptions{Half: workload.Even, Seed: 3, Live: 2, Calls: 40}
	p, err := workload.NewPlan("small", recs, o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := workload.NewPlan("small", recs, o)
	if err != nil || cmp.Diff(p, again) != "" {
		t.Errorf("the same options give another plan: %v", err)
	}
	s, err := p.Schedule(recs)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Calls) != 40 {
		t.Errorf("%d calls", len(s.Calls))
	}
	ends, last := map[int32]bool{}, map[int32]int64{}
	ids := map[string]bool{}
	for _, x := range s.Sessions {
		if ids[x.ID] {
			t.Errorf("session %s twice", x.ID)
		}
		ids[x.ID] = true
		if strings.HasPrefix(x.ID, "trace_0008") || strings.HasPrefix(x.ID, "trace_0001") {
			t.Errorf("session %s is too long, or odd", x.ID)
		}
	}
	for i, c := range s.Calls {
		if ends[c.Session] {
			t.Errorf("call %d comes behind the end of its session", i)
		}
		if at, ok := last[c.Session]; ok && c.At-at > 61e9 {
			t.Errorf("call %d begins %d s after the one before", i, (c.At-at)/1e9)
		}
		last[c.Session] = c.At
		kind := c.Say[0].Kind
		ends[c.Session] = kind == "session_end"
		if c.Finish == workload.FinishTools && kind == "user_wait" || c.Finish == workload.FinishStop && kind == "tool_wait" || len(c.Say) != 1 {
			t.Errorf("call %d says %+v", i, c.Say)
		}
		// An answer of 100 tokens, of which the next prompt has 64 at most.
		if want := int32(68); !ends[c.Session] && c.Dropped != want {
			t.Errorf("call %d drops %d tokens, want %d", i, c.Dropped, want)
		}
	}
	for name, o := range map[string]workload.PlanOptions{
		"half": {Half: "third"}, "live": {Live: -1}, "calls": {Calls: -1}, "none left": {MaxContext: 1},
	} {
		if _, err := workload.NewPlan("small", recs, o); err == nil {
			t.Errorf("%s: a plan", name)
		}
	}
	p.Places[0].ID = "trace_9999"
	if _, err := p.Schedule(recs); err == nil || !strings.Contains(err.Error(), "trace_9999") {
		t.Errorf("a session that is not there: %v", err)
	}
}
