package infer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/kvtier/branch"
)

// on builds calls of the main agent from runs.
func on(runs ...[]run) []*call {
	s := wekaSession{BlockSize: 64}
	for i, r := range runs {
		s.Requests = append(s.Requests, wekaRequest{T: float64(i * 100), Type: "n", Runs: r, InputTypes: []string{"text"}})
	}
	return s.stream()
}

func TestLabels(t *testing.T) {
	tests := map[string]struct {
		calls []*call
		want  []branch.Kind
	}{
		"growth":       {on([]run{{1, 100}}, []run{{1, 150}}), []branch.Kind{branch.First, branch.Continue}},
		"small loss":   {on([]run{{1, 100}}, []run{{1, 95}, {200, 50}}), []branch.Kind{branch.First, branch.Continue}},
		"rewrite":      {on([]run{{1, 100}}, []run{{1, 20}, {200, 80}}), []branch.Kind{branch.First, branch.Rewrite}},
		"compaction":   {on([]run{{1, 2000}}, []run{{1, 20}, {3000, 300}}), []branch.Kind{branch.First, branch.Compaction}},
		"small one":    {on([]run{{1, 100}}, []run{{1, 20}, {200, 20}}), []branch.Kind{branch.First, branch.Compaction}},
		"rebound":      {on([]run{{1, 100}}, []run{{1, 20}, {200, 20}}, []run{{1, 20}, {200, 60}}), []branch.Kind{branch.First, branch.Rewrite, branch.Continue}},
		"fork":         {on([]run{{1, 100}}, []run{{1, 20}, {200, 80}}, []run{{1, 120}}), []branch.Kind{branch.First, branch.Fork, branch.Continue}},
		"another line": {on([]run{{1, 100}}, []run{{200, 80}}, []run{{1, 120}}), []branch.Kind{branch.First, branch.SubAgent, branch.Continue}},
		"nothing sent": {on(nil, []run{{1, 5}}), []branch.Kind{branch.First, branch.Continue}},
	}
	for name, tt := range tests {
		var got []branch.Kind
		for _, l := range labels(tt.calls) {
			got = append(got, l.kind)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, not %v", name, got, tt.want)
		}
	}
}

// drawRuns makes runs in which no id comes twice.
func drawRuns(rng *rand.Rand) []run {
	var out []run
	next := int32(1)
	for range rng.IntN(6) {
		next += rng.Int32N(3)
		n := 1 + rng.Int32N(6)
		out = append(out, run{next, n})
		next += n
	}
	return out
}

func expand(runs []run) (ids []int32) {
	for _, r := range runs {
		for i := range r[1] {
			ids = append(ids, r[0]+i)
		}
	}
	return ids
}

// TestCut: items stand for the same blocks as the runs, and sharing leading items is
// sharing leading blocks.
func TestCut(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var requests [][]run
		for range 1 + rng.IntN(6) {
			requests = append(requests, drawRuns(rng))
		}
		calls := on(requests...)
		for _, a := range calls {
			size := 0
			for _, it := range a.items {
				size += it.Size
			}
			if size != a.blocks*64 {
				t.Fatalf("seed %d: %v became items of %d tokens", seed, a.Runs, size)
			}
			for _, b := range calls {
				x, y, n := expand(a.Runs), expand(b.Runs), 0
				for n < len(x) && n < len(y) && x[n] == y[n] {
					n++
				}
				shared := 0
				for i := 0; i < len(a.items) && i < len(b.items) && a.items[i].Digest == b.items[i].Digest; i++ {
					shared += a.items[i].Size / 64
				}
				if common(a.Runs, b.Runs) != n || shared != n {
					t.Fatalf("seed %d: %v and %v share %d blocks, by runs %d, by items %d", seed, a.Runs, b.Runs, n, common(a.Runs, b.Runs), shared)
				}
			}
		}
	}
}

func TestFigures(t *testing.T) {
	var c count
	for _, p := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, true}, {false, false}} {
		c.see(p[0], p[1])
	}
	want := []show.Figure{{Name: "infer.x.labels", Value: 3, Unit: "events"}, {Name: "infer.x.recall", Value: 1.0 / 3, Unit: "ratio"}, {Name: "infer.x.precision", Value: 0.5, Unit: "ratio"}}
	if got := c.figures("x"); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := (count{inferred: 3}).figures("x"); got != nil {
		t.Errorf("%v from no labels", got)
	}
	if got := (count{labels: 3}).figures("x"); len(got) != 2 {
		t.Errorf("%v: precision of nothing", got)
	}
}

func TestSteps(t *testing.T) {
	m := func(roles string) (out []message) {
		for _, r := range strings.Fields(roles) {
			x := message{Role: strings.TrimSuffix(r, "+")}
			if x.Role != r {
				x.ToolCalls = append(x.ToolCalls, nil)
			}
			out = append(out, x)
		}
		return out
	}
	dialog := "system user assistant user assistant+ tool tool assistant"
	if got := messageSteps(m(dialog), false); !slices.Equal(got, []step{{false, false}, {true, true}}) {
		t.Errorf("%v", got)
	}
	if got := messageSteps(m("user assistant user assistant"), true); !slices.Equal(got, []step{{false, true}}) {
		t.Errorf("commands as text: %v", got)
	}
	tool, user := waits([]step{{true, true}, {false, true}, {false, false}})
	if tool != (count{2, 1, 1, 1}) || user != (count{1, 2, 1, 1}) {
		t.Errorf("tool %v, user %v", tool, user)
	}
}

// TestTracelab: the raw segments hold the waits that one counts by hand.
func TestTracelab(t *testing.T) {
	steps, err := tracelabSteps(sharedDir(t) + "/traces")
	if err != nil {
		t.Fatal(err)
	}
	tool, user := waits(steps)
	if tool != (count{14, 14, 14, 14}) || user != (count{3, 3, 3, 3}) {
		t.Errorf("tool %v, user %v", tool, user)
	}
}
