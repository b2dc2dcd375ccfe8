package evict

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-dev/weir/kvtier/replay"
	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/schemas"
)

const blockTokens = workload.BlockTokens

// replaced is the named case: agent a waits for a tool; agent b is used later, and its
// context is then replaced by a summary; c needs room; a and then b go on.
func replaced() *workload.Schedule {
	say := func(kind schemas.EventKind, tool string) []workload.Say {
		return []workload.Say{{Kind: string(kind), After: 1e6, Tool: tool}}
	}
	return &workload.Schedule{
		Name:     "replaced",
		Sessions: []workload.Session{{ID: "a", Tenant: "t"}, {ID: "b", Tenant: "t"}, {ID: "c", Tenant: "t"}},
		Calls: []workload.Call{
			{
				At: 0, For: 1e9, Session: 0, In: 100 * blockTokens, Out: 20, Prompt: []workload.Run{{From: 0, N: 100}},
				Finish: workload.FinishTools, Tool: "test", Say: say(schemas.EventToolWait, "test"),
			},
			{
				At: 60e9, For: 1e9, Session: 1, In: 100 * blockTokens, Out: 20, Prompt: []workload.Run{{From: 0, N: 100}},
				Say: say(schemas.EventCompacted, ""),
			},
			{At: 80e9, For: 1e9, Session: 2, In: 100 * blockTokens, Out: 20, Prompt: []workload.Run{{From: 0, N: 100}}, Say: say(schemas.EventUserWait, "")},
			{At: 90e9, For: 1e9, Session: 0, In: 102 * blockTokens, Out: 20, Prompt: []workload.Run{{From: 0, N: 102}}},
			{At: 100e9, For: 1e9, Session: 1, In: 30 * blockTokens, Out: 20, Prompt: []workload.Run{{From: 0, N: 10}, {From: 200, N: 20}}},
		},
	}
}

func TestReplacedGoesBeforeOlderThatWaits(t *testing.T) {
	l, err := replay.Record(replaced(), replay.Explicit)
	if err != nil {
		t.Fatal(err)
	}
	found := map[replay.Policy]int32{}
	for _, p := range []replay.Policy{replay.Weir, replay.LRU} {
		r, err := replay.Run(l, p, 250*blockTokens)
		if err != nil {
			t.Fatal(err)
		}
		found[p] = r.Looks[3].Found
	}
	if got := found[replay.Weir]; got < 100*blockTokens {
		t.Errorf("the agent that waited for its tool finds %d tokens of 6400", got)
	}
	if got := found[replay.LRU]; got >= 100*blockTokens {
		t.Errorf("under LRU it finds %d tokens: the case tells nothing", got)
	}
}

// TestAblationChangesOneThing: each variant leaves the calls' tokens as they are, and
// says less or other things.
func TestAblationChangesOneThing(t *testing.T) {
	o := Options{Calls: 1500}.filled()
	s, err := o.schedule(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range signals() {
		if x.mute == nil {
			continue
		}
		got := x.mute(s)
		if err := got.Check(); err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
		differs := false
		for i := range s.Calls {
			a, b := &s.Calls[i], &got.Calls[i]
			if a.At != b.At || a.In != b.In || a.Out != b.Out || !cmp.Equal(a.Prompt, b.Prompt) {
				t.Fatalf("%s: call %d is another one", x.name, i)
			}
			differs = differs || !cmp.Equal(a.Say, b.Say)
		}
		if !differs {
			t.Errorf("%s: the agents say what they said", x.name)
		}
	}
}

func TestChurnFigures(t *testing.T) {
	fs, err := Churn(t.Context(), Options{Calls: 300, Capacities: []int64{1e6, 2e6}})
	if err != nil {
		t.Fatal(err)
	}
	v := map[string]float64{}
	for _, f := range fs {
		v[f.Name] = f.Value
	}
	if len(v) != 8 || !(v["evict.churn.1M.belady"] > v["evict.churn.1M.lru"]) || !(v["evict.churn.1M.lru"] > 0) {
		t.Errorf("%v", v)
	}
	want := (v["evict.churn.1M.weir"] - v["evict.churn.1M.lru"]) / (v["evict.churn.1M.belady"] - v["evict.churn.1M.lru"])
	if math.Abs(want-v["evict.churn.1M.gap_closed"]) > 1e-9 {
		t.Errorf("%v: the gap closed is %g", v, want)
	}
}

func TestSweepChart(t *testing.T) {
	rs, err := ChurnSweep(t.Context(), Options{Calls: 150, Capacities: []int64{5e5, 1e6, 2e6}})
	if err != nil {
		t.Fatal(err)
	}
	c := SweepChart("churn", rs)
	if len(c.Series) != len(replay.Policies())+1 {
		t.Errorf("%d lines", len(c.Series))
	}
	for _, s := range c.Series {
		if !cmp.Equal(s.X, []float64{0.5, 1, 2}) {
			t.Errorf("%s stands at %v", s.Name, s.X)
		}
	}
	if err := c.Text(&strings.Builder{}); err != nil {
		t.Error(err)
	}
}

func TestJudge(t *testing.T) {
	n := 1000
	at, lru, weir := make([]float64, n), make([]replay.Look, n), make([]replay.Look, n)
	for i := range n {
		at[i], lru[i], weir[i] = float64(i), replay.Look{In: 100, Found: 80}, replay.Look{In: 100, Found: 82}
		if i < 200 {
			weir[i].Found = 10
		}
	}
	var c HintCase
	c.judge(at, lru, weir)
	if math.Abs(c.Loss+2) > 1e-9 || math.Abs(c.LRU-0.8) > 1e-9 || math.Abs(c.Weir-0.82) > 1e-9 {
		t.Errorf("after learning: %+v", c)
	}
	if want := (200.0*70 - 800*2) / 1000; math.Abs(c.Whole-want) > 1e-9 {
		t.Errorf("over the whole: %g, want %g", c.Whole, want)
	}
	// From second i on (200-i)·70 - 800·2 tokens of (1000-i)·100 are lost: a point at 166.
	if c.LearnS < 160 || c.LearnS > 170 {
		t.Errorf("learned after %g s", c.LearnS)
	}
	for i := range weir {
		weir[i].Found = 70
	}
	if c.judge(at, lru, weir); c.LearnS != -1 || math.Abs(c.Loss-10) > 1e-9 {
		t.Errorf("ten points are lost for ever: %+v", c)
	}
}

func TestWriteTables(t *testing.T) {
	var b strings.Builder
	if err := WriteAblation(&b, []Ablated{{"nothing", 3e6, 0.8, 0.5}, {"nothing", 4e6, 0.9, 0.75}, {"ends", 3e6, 0.7, 0.25}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3M      4M\n", "nothing                               0.50    0.75\n", "ends                                  0.25    0.00\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := WriteHints(&b, []HintCase{{Fault: workload.FaultLate, P: 0.5, Capacity: 4e6, Loss: 0.25, LearnS: 60}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "late") || !strings.Contains(b.String(), "60 s") {
		t.Errorf("%s", b.String())
	}
}
