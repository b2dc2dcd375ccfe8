package infer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// sharedDir is the folder "shared" that lies beside the checkout.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		s := filepath.Join(dir, "shared")
		if _, err := os.Stat(filepath.Join(s, "traces")); err == nil {
			return s
		}
		if dir == filepath.Dir(dir) {
			t.Skip("there is no folder shared/traces beside the checkout")
		}
	}
}

// TestRun: inference on the recorded traces is as good as docs/inference.md says,
// with some room.
func TestRun(t *testing.T) {
	dir := sharedDir(t)
	start := time.Now()
	figures, err := Run(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	least := map[string]float64{
		"infer.tool_wait.labels": 20_000, "infer.tool_wait.recall": 0.99, "infer.tool_wait.precision": 0.99,
		"infer.user_wait.labels": 3000, "infer.user_wait.recall": 0.99, "infer.user_wait.precision": 0.98,
		"infer.tool_wait_messages.labels": 1000, "infer.tool_wait_messages.recall": 0.97, "infer.tool_wait_messages.precision": 0.99,
		"infer.user_wait_messages.labels": 1000, "infer.user_wait_messages.recall": 0.99, "infer.user_wait_messages.precision": 0.97,
		"infer.sub_agent.labels": 40, "infer.sub_agent.recall": 0.9, "infer.sub_agent.precision": 0.75,
		"infer.fork.labels": 8, "infer.fork.recall": 0.75, "infer.fork.precision": 0.6,
		"infer.compaction.labels": 80, "infer.compaction.recall": 0.95, "infer.compaction.precision": 0.88,
		"infer.rewrite.labels": 290, "infer.rewrite.recall": 0.93, "infer.rewrite.precision": 0.93,
		"infer.pruned.labels": 5000, "infer.pruned.recall": 0.99, "infer.pruned.precision": 0.99,
	}
	for _, f := range figures {
		t.Logf("%s %.4g %s", f.Name, f.Value, f.Unit)
		want, ok := least[f.Name]
		if !ok || f.Value < want || f.Unit == "ratio" && f.Value > 1 {
			t.Errorf("%s is %v, at least %v is wanted", f.Name, f.Value, want)
		}
		delete(least, f.Name)
	}
	if len(least) > 0 {
		t.Errorf("figures are missing: %v", least)
	}
	t.Logf("all in %v", took)
	if took > time.Minute {
		t.Errorf("it took %v, more than a minute", took)
	}
}

// TestTuned: the half on which the rules were tuned is not much better than the
// other one, or they were fitted to it.
func TestTuned(t *testing.T) {
	dir := filepath.Join(sharedDir(t), "traces")
	half := func(odd int) *result {
		r, err := weka(t.Context(), dir, func(n int) bool { return n%2 == odd })
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d sessions, %d calls, %d items", r.sessions, r.calls, r.items)
		return r
	}
	even, odd := half(0), half(1)
	for _, k := range scored {
		e, o := even.kinds[k], odd.kinds[k]
		t.Logf("%s: even %v, odd %v", k, e, o)
		if o.labels >= 30 && float64(o.found)/float64(o.labels) > float64(e.found)/float64(e.labels)+0.1 {
			t.Errorf("%s: recall is %d/%d on the tuned half and %d/%d on the other", k, o.found, o.labels, e.found, e.labels)
		}
	}
}

func TestNoTraces(t *testing.T) {
	if _, err := Run(t.Context(), t.TempDir()); !errors.Is(err, ErrNoTraces) {
		t.Errorf("%v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Run(ctx, sharedDir(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
