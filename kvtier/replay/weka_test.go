package replay

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-dev/weir/kvtier/workload"
)

// wekaFile finds the recorded trace, which is kept beside the repository.
func wekaFile(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		p := filepath.Join(dir, "shared", "traces", "weka-cc-traces", "weka_cc_710.rle.jsonl.gz")
		if _, err := os.Stat(p); err == nil {
			return p
		}
		dir = filepath.Dir(dir)
	}
	t.Skip("the recorded trace is not there: shared/traces beside the repository")
	return ""
}

func wekaSchedule(t testing.TB, o workload.PlanOptions) *workload.Schedule {
	t.Helper()
	f, err := os.Open(wekaFile(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	recs, _, err := workload.ReadWeka(f.Name(), f)
	if err != nil {
		t.Fatal(err)
	}
	p, err := workload.NewPlan("weka", recs, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Schedule(recs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWeka replays the beginning of a recorded load in both modes.
func TestWeka(t *testing.T) {
	s := wekaSchedule(t, workload.PlanOptions{Half: workload.Odd, Seed: 1, Calls: 400})
	var best float64
	for _, mode := range []Mode{Explicit, Inferred} {
		l, err := Record(s, mode)
		if err != nil {
			t.Fatal(err)
		}
		if l.Lineage.Turns != 400 || l.Lineage.Dropped != 0 {
			t.Errorf("%s: lineage made %+v", mode, l.Lineage)
		}
		for _, p := range Policies() {
			r, err := Run(l, p, 2e6)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%-8s %-12s hit rate %.4f", mode, p, r.HitRate)
			if p == Belady {
				if best == 0 {
					best = r.HitRate
				} else if best != r.HitRate {
					t.Errorf("the bound is %v, from what is inferred %v", best, r.HitRate)
				}
			}
		}
	}
}
