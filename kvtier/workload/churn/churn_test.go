package churn

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-dev/weir/kvtier/workload"
	"github.com/weir-dev/weir/schemas"
	"pgregory.net/rapid"
)

// long is ten hours of churn, for statistics.
func long(t *testing.T) *workload.Schedule {
	t.Helper()
	p := Default()
	p.Horizon, p.MaxCalls = 36_000, 1<<20
	s, err := Generate(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encoded(t interface{ Fatal(...any) }, p Params, seed uint64) []byte {
	s, err := Generate(p, seed)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := workload.Encode(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSameSeedSameBytes(t *testing.T) {
	a, b, c := encoded(t, Default(), 7), encoded(t, Default(), 7), encoded(t, Default(), 8)
	if !bytes.Equal(a, b) {
		t.Error("one seed gave two schedules")
	}
	if bytes.Equal(a, c) {
		t.Error("two seeds gave one schedule")
	}
}

// TestStreamsAreApart: one parameter does not change what has nothing to do with it.
func TestStreamsAreApart(t *testing.T) {
	p := Default()
	with, err := Generate(p, 3)
	if err != nil {
		t.Fatal(err)
	}
	p.OneShots = 0
	without, err := Generate(p, 3)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for _, c := range with.Calls {
		if with.Sessions[c.Session].Tenant == "background" {
			continue
		}
		if d := without.Calls[i]; d.At != c.At || d.In != c.In || d.Tool != c.Tool {
			t.Fatalf("call %d of the agents is at %d with %d tokens, without background at %d with %d", i, c.At, c.In, d.At, d.In)
		}
		i++
	}
	if i == 0 || i != len(without.Calls) {
		t.Errorf("%d calls of agents, without background %d", i, len(without.Calls))
	}
}

// TestStatistics holds what is generated against the parameters.
func TestStatistics(t *testing.T) {
	p, st := Default(), measure(long(t))
	near := func(what string, got, want, factor float64) {
		t.Helper()
		if !(got >= want/factor && got <= want*factor) {
			t.Errorf("%s: %.4g, want %.4g within a factor of %g", what, got, want, factor)
		}
	}
	for _, tool := range p.Tools {
		got := st.byTool[tool.Name]
		for _, q := range []float64{0.5, 0.9} {
			near(fmt.Sprintf("%s p%.0f of %d", tool.Name, 100*q, len(got)), quantile(got, q), tool.Wait.Quantile(q), 1.35)
		}
	}
	near("tools p50", quantile(st.toolWaits, 0.5), 0.3, 1.4) // TraceLab, as below
	near("tools p90", quantile(st.toolWaits, 0.9), 13.6, 1.2)
	near("tools p99", quantile(st.toolWaits, 0.99), 216, 2)
	near("user p50", quantile(st.userWaits, 0.5), p.UserWait.Quantile(0.5), 1.15)
	near("user p80", quantile(st.userWaits, 0.8), p.UserWait.Quantile(0.8), 1.15)
	near("before, small", quantile(st.before, 0.3), p.SmallWindow.Quantile(0.5), 1.2)
	near("before, large", quantile(st.before, 0.9), p.Window.Quantile(0.5), 1.1)
	near("after p50", quantile(st.after, 0.5), p.After.Quantile(0.5), 1.2)
	near("gap p50", quantile(st.gap, 0.5), 179, 1.2) // weka compaction.gap_s
	near("first prompt of sub-agents", quantile(st.firstSub, 0.5), 10_335, 1.1)
	near("their last", mean(st.lastSub), 70_101, 1.35)
	near("their calls", mean(st.subCalls), 10.73, 1.15)
	near("fan-out", mean(st.fanOut), 2.3, 1.15)
	near("sessions with sub-agents", float64(st.withSubs)/float64(st.sessions), 0.44, 1.15) // kvtier 5.4
	near("sessions with screens", float64(st.screens)/float64(st.sessions), p.Screens, 1.3)
	near("dropped", st.dropped, p.Reasoning*p.ReasoningMean, 1.2)
	near("one-shots", float64(st.background), p.OneShots*36_000, 1.1)
	near("rewrites", float64(st.rewrites)/float64(st.transitions), 442.0/48_561, 1.5) // traces 4.3
	compacted, n := 0.0, 0.0
	for _, c := range st.compactions {
		if compacted += c; c > 0 {
			n++
		}
	}
	if got := compacted / n; got < 2.37 || got > 4.23 { // TraceLab: Claude, Codex
		t.Errorf("sessions that are compacted are so %.2f times", got)
	}
}

// TestChained: an id always stands behind the same one, at the same place.
func TestChained(t *testing.T) {
	p := Default()
	p.PerCallRetry, p.PerTurnFork, p.PerTurnRewrite, p.PerStepRewrite, p.Screens = 0.1, 0.3, 0.2, 0.05, 0.3
	s, err := Generate(p, 5)
	if err != nil {
		t.Fatal(err)
	}
	chained(t, s)
}

func chained(t interface{ Fatalf(string, ...any) }, s *workload.Schedule) {
	type place struct{ session, id int32 }
	type where struct {
		before int32
		depth  int
	}
	seen := map[place]where{}
	for i := range s.Calls {
		c := &s.Calls[i]
		before, depth := int32(-1), 0
		for _, id := range flat(c.Prompt) {
			k, w := place{c.Session, id}, where{before, depth}
			if id >= workload.Global {
				k.session = -1
			}
			if old, ok := seen[k]; ok && old != w {
				t.Fatalf("call %d of session %d: id %d stands at %d behind %d, elsewhere at %d behind %d", i, c.Session, id, depth, before, old.depth, old.before)
			}
			seen[k] = w
			before, depth = id, depth+1
		}
	}
}

// TestSubAgents: siblings share all but their tasks, parents only what both begin with.
func TestSubAgents(t *testing.T) {
	s := long(t)
	type start struct {
		session int32
		at      int64
	}
	firsts, parents, pairs := map[start]*workload.Call{}, map[int32]*workload.Call{}, 0
	met := map[lineKey]bool{}
	for i := range s.Calls {
		c := &s.Calls[i]
		if k := (lineKey{c.Session, c.Line}); met[k] || s.Sessions[c.Session].Tenant == "background" {
			continue
		} else {
			met[k] = true
		}
		if !isSub(c) {
			if c.Line == 0 {
				parents[c.Session] = c
			}
			continue
		}
		if p := parents[c.Session]; p != nil && common(p.Prompt, c.Prompt) != 0 {
			t.Fatalf("call %d: a sub-agent shares %d blocks with its parent", i, common(p.Prompt, c.Prompt))
		}
		k := start{c.Session, c.At}
		if a := firsts[k]; a != nil {
			pairs++
			if n := common(a.Prompt, c.Prompt); float64(n) < 0.7*float64(a.Blocks()) {
				t.Errorf("call %d: siblings share %d of %d blocks", i, n, a.Blocks())
			}
		}
		firsts[k] = c
	}
	if pairs < 100 {
		t.Errorf("only %d pairs of siblings were met", pairs)
	}
}

// TestEvents: what is said fits what happens.
func TestEvents(t *testing.T) {
	s := long(t)
	count, ended := map[string]int{}, map[lineKey]int64{}
	forks := map[lineKey]lineKey{}
	lastCall := map[lineKey]*workload.Call{}
	for i := range s.Calls {
		c := &s.Calls[i]
		k := lineKey{c.Session, c.Line}
		for _, e := range []lineKey{k, {c.Session, -1}} {
			if at, ok := ended[e]; ok && c.At >= at {
				t.Fatalf("call %d comes after its line or session said that it ends", i)
			}
		}
		if from, ok := forks[k]; ok && lastCall[k] == nil {
			if n := common(lastCall[from].Prompt, c.Prompt); n < lastCall[from].Blocks() {
				t.Errorf("call %d: a fork repeats %d of the %d blocks of what it forks from", i, n, lastCall[from].Blocks())
			}
		}
		for _, y := range c.Say {
			count[y.Kind]++
			switch schemas.EventKind(y.Kind) {
			case schemas.EventToolWait:
				if c.Finish != workload.FinishTools || y.Tool != c.Tool || y.Tool == "" {
					t.Fatalf("call %d says that it waits for %q, calls %q", i, y.Tool, c.Tool)
				}
			case schemas.EventBranchFork:
				forks[lineKey{c.Session, y.Line}] = k
			case schemas.EventBranchEnd:
				ended[lineKey{c.Session, y.Line}] = c.At + c.For + y.After
			case schemas.EventSessionEnd:
				ended[lineKey{c.Session, -1}] = c.At + c.For + y.After
			}
		}
		lastCall[k] = c
	}
	for _, k := range []schemas.EventKind{
		schemas.EventToolWait, schemas.EventUserWait, schemas.EventBranchFork,
		schemas.EventBranchEnd, schemas.EventCompacted, schemas.EventSessionEnd,
	} {
		if count[string(k)] < 50 {
			t.Errorf("%s is said %d times", k, count[string(k)])
		}
	}
}

// TestScreenPolicies: pruned screenshots leave what stands before them.
func TestScreenPolicies(t *testing.T) {
	p := Default()
	p.PerCallRetry = 0
	for _, policy := range p.ScreenPolicies {
		q := p
		q.ScreenPolicies, q.ScreenWindow = []ScreenPolicy{policy}, Dist{1e6, 0, 1e6, 1e6}
		q.ScreenSteps = Dist{100, 0, 100, 100}
		s := &session{p: &q, r: rand.New(rand.NewPCG(1, 1)), window: 1 << 20}
		s.screens(shared(sharedScreen, 0, 6000), 6000)
		breaks := 0
		for i := 1; i < len(s.calls); i++ {
			a, b := &s.calls[i-1], &s.calls[i]
			if n := common(a.Prompt, b.Prompt); n < a.Blocks() {
				breaks++
				if n < 6000/workload.BlockTokens {
					t.Errorf("%+v: step %d keeps %d blocks", policy, i, n)
				}
			}
		}
		want := (100-1-policy.Keep-policy.Every)/policy.Every + 1
		if math.Abs(float64(breaks-want)) > 1 {
			t.Errorf("%+v: %d breaks in 100 steps, want %d", policy, breaks, want)
		}
	}
}

// anyParams draws parameters that Check accepts, and small enough to be quick.
func anyParams(t *rapid.T) Params {
	p := Default()
	p.Agents, p.MaxCalls = rapid.IntRange(0, 5).Draw(t, "agents"), rapid.IntRange(0, 300).Draw(t, "calls")
	p.Horizon = rapid.Float64Range(0, 2000).Draw(t, "horizon")
	p.Tenants, p.Systems = rapid.IntRange(1, 5).Draw(t, "tenants"), rapid.IntRange(1, 9).Draw(t, "systems")
	share := func(name string) float64 { return rapid.Float64Range(0, 1).Draw(t, name) }
	p.Reasoning, p.ReasoningMean, p.SmallShare, p.Stuck, p.SubAsync = share("reasoning"), share("mean"), share("small"), share("stuck"), share("async")
	p.PerStepSubs, p.PerStepRewrite = share("subs")/2, share("rewrite")/2
	p.PerTurnFork, p.PerTurnRewrite = share("fork")/2, share("turn rewrite")/2
	p.PerCallRetry, p.EndSaid, p.Screens, p.ForkEnds = share("retry"), share("end"), share("screens"), share("fork ends")
	dist := func(name string, most float64) Dist {
		d := Dist{Median: rapid.Float64Range(0.001, most).Draw(t, name), Sigma: rapid.Float64Range(0, 3).Draw(t, name+" sigma"), Max: most}
		d.Min = rapid.Float64Range(0, most).Draw(t, name+" min")
		return d
	}
	p.Calls, p.SubCalls, p.SubFanOut, p.CallsInTurn = dist("n", 30), dist("sub n", 5), dist("fan-out", 3), dist("in turn", 30)
	p.System, p.ToolStep, p.Output, p.After = dist("system", 1<<12), dist("step", 1<<13), dist("out", 1<<10), dist("after", 1<<13)
	p.Window, p.SubSystem, p.Answer, p.UserWait = dist("window", 1<<15), dist("sub system", 1<<12), dist("answer", 500), dist("user", 500)
	p.Screenshot = rapid.IntRange(0, 5000).Draw(t, "screenshot")
	p.Placeholder = rapid.IntRange(0, p.Screenshot).Draw(t, "placeholder")
	p.OneShots = rapid.Float64Range(0, 0.5).Draw(t, "one-shots")
	return p
}

// TestAnyParams: whatever the parameters, a schedule can be replayed, is chained, and
// is made again from its seed.
func TestAnyParams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, seed := anyParams(t), rapid.Uint64().Draw(t, "seed")
		s, err := Generate(p, seed)
		if err != nil {
			t.Fatal(err)
		}
		chained(t, s)
		if len(s.Calls) > p.MaxCalls {
			t.Errorf("%d calls, at most %d", len(s.Calls), p.MaxCalls)
		}
		if !bytes.Equal(encoded(t, p, seed), encoded(t, p, seed)) {
			t.Error("one seed gave two schedules")
		}
	})
}

func TestBadParams(t *testing.T) {
	tests := map[string]struct {
		spoil func(p *Params)
		want  string
	}{
		"share":    {func(p *Params) { p.Screens = 1.5 }, "Screens is 1.5"},
		"nan":      {func(p *Params) { p.EndSaid = math.NaN() }, "EndSaid is NaN"},
		"dist":     {func(p *Params) { p.After.Max = 1 }, "After is {Median:33700"},
		"huge":     {func(p *Params) { p.ToolStep.Max = 1e9 }, "Max <= 1.04"},
		"tool":     {func(p *Params) { p.Tools = nil }, "no Tools"},
		"policies": {func(p *Params) { p.ScreenPolicies = nil }, "no ScreenPolicies"},
		"sum":      {func(p *Params) { p.PerStepSubs, p.PerStepRewrite = 0.6, 0.6 }, "adds up to more than 1"},
		"systems":  {func(p *Params) { p.Systems = 0 }, "Systems is 0"},
		"lines":    {func(p *Params) { p.SubFanOut.Max = 10_000 }, "lines of context"},
		"horizon":  {func(p *Params) { p.Horizon = math.Inf(1) }, "Horizon is +Inf"},
	}
	for name, tt := range tests {
		p := Default()
		tt.spoil(&p)
		s, err := Generate(p, 1)
		if s != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tt.want)
		}
	}
	p := Default()
	p.Screens, p.EndSaid = -1, 2
	if err := p.Check(); !strings.Contains(err.Error(), "Screens") || !strings.Contains(err.Error(), "EndSaid") {
		t.Errorf("%v does not name both faults", err)
	}
}
