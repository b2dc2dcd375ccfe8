package tracecmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-dev/weir/kvtier/replay"
	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/services/serve"
)

// recorded writes a file of recorded sessions and returns its path.
func recorded(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	for i := range 8 {
		fmt.Fprintf(&b, `{"id":"trace_%04d","block_size":64,"requests":[`, i)
		for k := range 12 {
			if k > 0 {
				b.WriteByte(',')
			}
			n := 640 + 128*k + 64*i
			stop := "tool_use"
			if k%4 == 3 {
				stop = "end_turn"
			}
			fmt.Fprintf(&b, `{"t":%d,"in":%d,"out":100,"stop":%q,"api_time":3,"think_time":%d,"hash_runs":[[1,%d]]}`, 20*k, n, stop, 5+7*(k%3), n/64)
		}
		b.WriteString("]}\n")
	}
	p := filepath.Join(t.TempDir(), "small.jsonl")
	if err := os.WriteFile(p, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// outText is what the last command wrote.
var outText string

func run(args ...string) error {
	var out, errOut bytes.Buffer
	c := NewCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(&out)
	c.SetErr(&errOut)
	c.SetArgs(args)
	err := c.ExecuteContext(context.Background())
	outText = out.String()
	return err
}

func TestEvict(t *testing.T) {
	file := recorded(t)
	args := []string{"evict", file, "--capacity", "2k,0.006M", "--live", "3", "--calls", "60", "--seed", "1,2", "-o", "json"}
	if err := run(args...); err != nil {
		t.Fatal(err)
	}
	first := outText
	lines := strings.Split(strings.TrimSpace(first), "\n")
	if len(lines) != 2*2*len(Policies()) {
		t.Fatalf("%d lines:\n%s", len(lines), first)
	}
	best := map[string]float64{}
	rows := make([]replay.Result, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &rows[i]); err != nil {
			t.Fatal(err)
		}
		if r := rows[i]; r.Policy == replay.Belady {
			best[fmt.Sprint(r.Load, r.Capacity)] = r.HitRate
		}
	}
	for _, r := range rows {
		if b := best[fmt.Sprint(r.Load, r.Capacity)]; r.HitRate > b || r.Calls != 60 || r.Prompt == 0 {
			t.Errorf("%+v, the bound is %v", r, b)
		}
		if r.Policy == replay.LRU && r.GapClosed != nil && *r.GapClosed != 0 {
			t.Errorf("LRU closes %v of the gap to itself", *r.GapClosed)
		}
		if r.Policy == Inferred && r.Mode != replay.Inferred {
			t.Errorf("%s was replayed with agents of mode %s", r.Policy, r.Mode)
		}
	}
	if err := run(args...); err != nil || outText != first {
		t.Errorf("the same command wrote something else: %v", err)
	}
	if err := run(args[:len(args)-2]...); err != nil || !strings.Contains(outText, "medians of 2 loads") || !strings.Contains(outText, "2.0k ") {
		t.Errorf("for people: %v\n%s", err, outText)
	}
}

// TestSchedule: a plan and a whole schedule are the same load.
func TestSchedule(t *testing.T) {
	file, dir := recorded(t), t.TempDir()
	var results []string
	for _, more := range [][]string{nil, {"--with-calls"}} {
		if err := run(append([]string{"schedule", file, "--live", "2", "--calls", "30", "--seed", "9"}, more...)...); err != nil {
			t.Fatal(err)
		}
		saved := filepath.Join(dir, fmt.Sprint("saved", len(more)))
		if err := os.WriteFile(saved, []byte(outText), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"evict", file, "--plan", saved}
		if more != nil {
			args = []string{"evict", saved}
		}
		if err := run(append(args, "--capacity", "4000", "-o", "json")...); err != nil {
			t.Fatal(err)
		}
		results = append(results, outText)
	}
	if results[0] != results[1] {
		t.Errorf("plan:\n%s\nschedule:\n%s", results[0], results[1])
	}
}

func TestWrongUse(t *testing.T) {
	file := recorded(t)
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"format":"weir.plan.v1","trace":"x","options":{},"places":[{"id":"trace_0099"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args  []string
		usage bool
		want  string
	}{
		"output":        {[]string{"evict", file, "-o", "xml"}, true, "only json"},
		"policy":        {[]string{"evict", file, "--policy", "best"}, true, `"best"`},
		"capacity":      {[]string{"evict", file, "--capacity", "4G"}, true, `"4G"`},
		"tiny":          {[]string{"evict", file, "--capacity", "63"}, true, `"63"`},
		"half":          {[]string{"evict", file, "--half", "third"}, true, `"third"`},
		"no file":       {[]string{"evict", file + ".gz"}, false, "small.jsonl.gz"},
		"a plan's file": {[]string{"evict", file, "--plan", file}, false, "weir trace schedule"},
		"another trace": {[]string{"evict", file, "--plan", bad}, false, "trace_0099"},
		"a plan":        {[]string{"evict", bad}, true, "--plan"},
		"no capacity":   {[]string{"evict", file, "--capacity", ""}, true, "--capacity"},
		"nobody live":   {[]string{"evict", file, "--live", "0"}, true, "--live is 0"},
		"no calls":      {[]string{"schedule", file, "--calls", "0"}, true, "--calls is 0"},
		"two seeds":     {[]string{"schedule", file, "--seed", "1,2"}, true, "2 seeds"},
	} {
		err := run(tt.args...)
		if err == nil || errors.Is(err, serve.ErrUsage) != tt.usage || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCancelled: what is interrupted ends with that reason, and begins no more.
func TestCancelled(t *testing.T) {
	s := &workload.Schedule{Name: "x", Sessions: []workload.Session{{ID: "s", Tenant: "t"}}, Calls: []workload.Call{{In: 64, Out: 1, Prompt: []workload.Run{{From: 1, N: 1}}}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rs, err := Evict(ctx, []*workload.Schedule{s, s}, Options{Capacities: []int64{1000}})
	if !errors.Is(err, context.Canceled) || rs != nil {
		t.Errorf("%v, %v", rs, err)
	}
}
