package evict

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/weir-dev/weir/kvtier/replay"
	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/services/tracecmd"
)

func traceOrSkip(t *testing.T) string {
	t.Helper()
	p, err := WekaFile(".")
	if errors.Is(err, ErrNoTrace) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPlans: the builder still draws the plans that are kept, byte by byte.
func TestPlans(t *testing.T) {
	file := traceOrSkip(t)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	recs, _, err := workload.ReadWeka(file, f)
	if err != nil {
		t.Fatal(err)
	}
	for half, seeds := range map[workload.Half][]uint64{workload.Even: wekaHeldOut, workload.Odd: wekaTuning} {
		for _, seed := range seeds {
			kept, err := wekaPlans.ReadFile(fmt.Sprintf("testdata/weka-%s-%d.json", half, seed))
			if err != nil {
				t.Fatal(err)
			}
			p, err := workload.NewPlan("weka_cc_710", recs, workload.PlanOptions{Half: half, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := tracecmd.WritePlan(&b, p); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b.Bytes(), kept) {
				t.Errorf("%s, seed %d: the builder draws another plan than the kept one", half, seed)
			}
			s, err := p.Schedule(recs)
			if err != nil {
				t.Fatal(err)
			}
			checkLive(t, p, s)
		}
	}
}

// checkLive: from the first minute to the end as many sessions run as the plan says, or
// are 30 s from their place's next one.
func checkLive(t *testing.T, p *workload.Plan, s *workload.Schedule) {
	t.Helper()
	if len(s.Calls) != p.Make.Calls {
		t.Errorf("%s has %d calls", s.Name, len(s.Calls))
	}
	begin, end := make([]int64, len(s.Sessions)), make([]int64, len(s.Sessions))
	for i := range s.Calls {
		c := &s.Calls[i]
		if end[c.Session] == 0 {
			begin[c.Session] = c.At
		}
		end[c.Session] = c.At + c.For
		if c.In > int32(p.Make.MaxContext) {
			t.Fatalf("%s: call %d has %d tokens", s.Name, i, c.In)
		}
	}
	last := s.Calls[len(s.Calls)-1].At
	for at := int64(60e9); at < last-120e9; at += 60e9 {
		live := 0
		for i := range begin {
			if begin[i] <= at && at < end[i]+p.Make.Pause*1e6 {
				live++
			}
		}
		if live != p.Make.Live {
			t.Errorf("%s: %d sessions live at %d s", s.Name, live, at/1e9)
			return
		}
	}
}

// TestWekaShort is the beginning of one load through all policies: nothing beats the
// bound, and the same load gives the same results.
func TestWekaShort(t *testing.T) {
	o := WekaOptions{Trace: traceOrSkip(t), Seeds: 1, Calls: 600, Capacities: []int64{2e6, 3e6}, Policies: tracecmd.Policies()}
	rows, rs, err := Weka(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	best := map[int64]float64{}
	for _, r := range rs {
		if r.Policy == replay.Belady {
			best[r.Capacity] = r.HitRate
		}
	}
	for _, r := range rows {
		t.Logf("%d M %-12s hit rate %.4f", r.Capacity/1e6, r.Policy, r.HitRate)
		if r.HitRate > best[r.Capacity] || r.HitRate <= 0 {
			t.Errorf("%s at %d tokens: hit rate %v, the bound is %v", r.Policy, r.Capacity, r.HitRate, best[r.Capacity])
		}
	}
	_, again, err := Weka(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rs, again) {
		t.Error("the same load gave other results")
	}
}
