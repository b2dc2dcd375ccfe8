package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-dev/weir/schemas/calib"
)

// given returns a folder of the given scenarios or calibrations, or skips: they are no
// part of the repository.
func given(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		p := filepath.Join(dir, "shared", name)
		if _, err := os.Stat(p); err == nil {
			return p
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skipf("no shared/%s above the working folder", name)
		}
		dir = up
	}
}

// toyCal is a small worker: one attention rank, a prefill step of 100 ms whatever it
// holds, decode steps of 10 ms.
func toyCal(t testing.TB) *calib.Calibration {
	t.Helper()
	c, err := calib.Parse([]byte(`{"schema":"calib/v1","id":"toy","layout":{"gpus":1,"attn_dp":1},
"prefill":{"form":"max(floor,a*n)+c*S+m0+m1*N","coef":{"floor":100}},
"decode":{"grid_B":[0,256],"ms":[10,10],"max_B":256},
"mem":{"kv_bytes_tok":1000,"kv_tokens":100000000},
"links":[{"name":"p2d","gbps":1000,"lat_us":10},{"name":"host_local","gbps":1000,"lat_us":10},{"name":"host_shared","gbps":1000,"lat_us":10}],
"flip":{"p2d_ms":30,"d2p_ms":300,"restart_s":60},
"range":{"n":[1,1024],"prefix":[0,262144],"B":[1,256],"K":[0,100000000]}}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const toyWorkloads = `{"schema":"weir.workloads.v1","closed_loop":true,"workloads":{
"long":{"turns":[1,1],"first_prompt_tokens":{"uniform":[300,1000]},"output_tokens":{"lognormal":{"median":900,"sigma":0.7,"min":8,"max":3200}}},
"agent":{"turns":[5,12],"first_prompt_tokens":{"uniform":[700,900]},"shared_prefix_tokens":640,"new_tokens":{"uniform":[600,900]},
 "output_tokens":{"lognormal":{"median":40,"sigma":0.6,"min":8,"max":150}},"wait_s":{"lognormal":{"median":3,"sigma":0.7,"max":120}},
 "context_limit_tokens":6000,"after_compaction_tokens":1000},
"probe":{"turns":[1000000,1000000],"first_prompt_tokens":{"uniform":[1000,1000]},"new_tokens":{"uniform":[1,1]},
 "output_tokens":{"uniform":[1,1]},"wait_s":{"exponential":{"mean":100}},"context_limit_tokens":1000,"after_compaction_tokens":999}}}`

func toy(t testing.TB, phases string) *Scenario {
	t.Helper()
	sc, err := Parse([]byte(`{"schema":"weir.scenario.v1","name":"toy","cluster":{"workers":4,"gpus_per_worker":1,"host_gb_per_worker":0.4,
"max_num_seqs_per_worker":64},"signals":{"report_age_ms":50,"bus_delay_ms":[0.2,1]},`+phases+`}`), []byte(toyWorkloads))
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

const toyShift = `"phases":[{"workload":"long","concurrency":40,"sessions":80},{"workload":"agent","concurrency":40,"sessions":60}]`

func system(t testing.TB, name string, cal *calib.Calibration) System {
	t.Helper()
	sys, err := ParseSystem(name, 4, cal, 1)
	if err != nil {
		t.Fatal(err)
	}
	return sys
}

func run(t testing.TB, sc *Scenario, sys System, o Options) *Figures {
	t.Helper()
	f, err := Run(context.Background(), sc, sys, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestSystems: every system does all the work of a shift and breaks no invariant, with
// each tier and order.
func TestSystems(t *testing.T) {
	cal, sc := toyCal(t), toy(t, toyShift)
	for _, name := range []string{"static:1", "static:3", "mixed", "weir", "dynamo:1"} {
		for _, tier := range []Tier{TierShared, TierPrivate, TierNone} {
			for _, order := range []Order{OrderWeir, OrderLRU} {
				if tier == TierNone && order == OrderWeir {
					continue // there is nothing to order
				}
				sys := system(t, name, cal)
				sys.Tier, sys.Order = tier, order
				f := run(t, sc, sys, Options{Cal: cal, Seed: 3})
				turns := 0
				for _, c := range f.Classes {
					turns += c.Turns
				}
				if f.Classes["long"].Turns != 80 || turns != f.Turns || f.MakespanS <= 0 {
					t.Errorf("%s, %s, %s: %d turns, of them %d long, in %.0f s", name, tier, order, f.Turns, f.Classes["long"].Turns, f.MakespanS)
				}
				if f.BusyP > 1.001 || f.BusyD > 1.001 {
					t.Errorf("%s, %s, %s: roles computed for %.3f and %.3f of their time", name, tier, order, f.BusyP, f.BusyD)
				}
				if sys.Restart > 0 && f.Flips > 0 && f.Restarts == 0 {
					t.Errorf("%s, %s: %d role changes without a restart", name, tier, f.Flips)
				}
			}
		}
	}
}

// TestSameSeed is invariant 9: two runs of one seed are the same, event for event and
// in every figure; another seed is another run. Bodies that are shared or encoded make
// no difference.
func TestSameSeed(t *testing.T) {
	cal, sc := toyCal(t), toy(t, toyShift)
	play := func(name string, seed uint64, log bool) (figures, events string) {
		h := sha256.New()
		o := Options{Cal: cal, Seed: seed}
		if log {
			o.Log = h
		}
		b, err := json.Marshal(run(t, sc, system(t, name, cal), o))
		if err != nil {
			t.Fatal(err)
		}
		return string(b), hex.EncodeToString(h.Sum(nil))
	}
	sc.Phases[0].Sessions, sc.Phases[1].Sessions = 40, 30 // encoding every message takes its time
	for _, name := range []string{"weir", "dynamo:1"} {
		f1, e1 := play(name, 5, true)
		f2, e2 := play(name, 5, true)
		f3, _ := play(name, 5, false)
		f4, e4 := play(name, 6, true)
		if f1 != f2 || e1 != e2 {
			t.Errorf("%s: two runs of one seed differ:\n%s\n%s", name, f1, f2)
		}
		if f1 != f3 {
			t.Errorf("%s: shared bodies change the run:\n%s\n%s", name, f1, f3)
		}
		if f1 == f4 || e1 == e4 {
			t.Errorf("%s: two seeds gave one run", name)
		}
	}
}

// TestEnds: a run obeys its context and its bound of time, and says which.
func TestEnds(t *testing.T) {
	cal, sc := toyCal(t), toy(t, toyShift)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Run(ctx, sc, system(t, "static:1", cal), Options{Cal: cal}); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	if _, err := Run(context.Background(), sc, system(t, "static:1", cal), Options{Cal: cal, MaxS: 10}); !errors.Is(err, ErrTooLong) {
		t.Errorf("10 s of work: %v", err)
	}
}

// TestRefused: what cannot be simulated says why.
func TestRefused(t *testing.T) {
	cal, sc := toyCal(t), toy(t, toyShift)
	for name, sys := range map[string]System{
		"no executor prefills": {Prefill: 0, Tier: TierShared, Order: OrderLRU},
		"none decodes":         {Prefill: 4, Tier: TierShared, Order: OrderLRU},
		"no tier":              {Prefill: 1, Order: OrderLRU},
		"no order":             {Prefill: 1, Tier: TierShared},
	} {
		if _, err := Run(context.Background(), sc, sys, Options{Cal: cal}); !errors.Is(err, ErrScenario) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, phases := range []string{
		`"phases":[]`, `"phases":[{"workload":"nobody"}]`, `"phases":[{"workload":"long","mix":{"agent":1}}]`, `"phases":[{"mix":{"agent":[1]}}]`,
		`"phases":[{"workload":"long","sessions":-1}]`,
	} {
		_, err := Parse([]byte(`{"schema":"weir.scenario.v1","cluster":{"workers":4,"max_num_seqs_per_worker":1},`+phases+`}`), []byte(toyWorkloads))
		if !errors.Is(err, ErrScenario) {
			t.Errorf("%s: %v", phases, err)
		}
	}
	if _, err := Parse([]byte(`{"schema":"weir.scenario.v2"}`), []byte(toyWorkloads)); !errors.Is(err, ErrScenario) {
		t.Errorf("another schema: %v", err)
	}
	for _, name := range []string{"", "static:x", "static:-1", "best"} {
		sys, err := ParseSystem(name, 4, cal, 1)
		if err == nil {
			_, err = Run(context.Background(), sc, sys, Options{Cal: cal})
		}
		if !errors.Is(err, ErrScenario) {
			t.Errorf("system %q: %v", name, err)
		}
	}
}

// TestGiven: the given scenarios can be read, and run for a while.
func TestGiven(t *testing.T) {
	dir, cals := given(t, "scenarios"), given(t, "calib")
	for _, name := range []string{"shift-math-to-computer-use", "stationary-mix", "oscillation", "overload", "coding-plus-computer-use"} {
		sc, err := LoadScenario(filepath.Join(dir, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range sc.Cluster.Calibrations {
			cal, err := LoadCalibration(cals, m, 1)
			if err != nil {
				t.Fatal(err)
			}
			sys, err := ParseSystem("weir", sc.Cluster.Workers, cal, 1)
			if err != nil {
				t.Fatal(err)
			}
			for i := range sc.Phases {
				sc.Phases[i].Sessions = min(sc.Phases[i].Sessions, 40)
				sc.Phases[i].DurationS, sc.Phases[i].DiscardS = min(sc.Phases[i].DurationS, 60), 0
			}
			sc.DurationS, sc.DiscardS = min(sc.DurationS, 60), 0
			f := run(t, sc, sys, Options{Cal: cal, Seed: 1, Load: 0.1, Concurrency: 500})
			if f.Turns == 0 {
				t.Errorf("%s with %s: no turn ended", name, m)
			}
		}
	}
}

// TestCommand: weir sim prints figures that can be read.
func TestCommand(t *testing.T) {
	dir, cals := given(t, "scenarios"), given(t, "calib")
	b, err := os.ReadFile(filepath.Join(dir, "workloads.json"))
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	sc := `{"schema":"weir.scenario.v1","name":"small","cluster":{"workers":3,"calibrations":["kimi-k2.6_gb300_dep4"],"host_gb_per_worker":540,
"max_num_seqs_per_worker":256},"phases":[{"workload":"computer-use","concurrency":5,"sessions":5}]}`
	for name, content := range map[string][]byte{"workloads.json": b, "small.json": []byte(sc)} {
		if err := os.WriteFile(filepath.Join(tmp, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"-o", "json"}, {}} {
		var out bytes.Buffer
		c := Command()
		c.SetOut(&out)
		c.SetErr(&out)
		c.SetArgs(append([]string{filepath.Join(tmp, "small.json"), "--system", "static:1", "--tier", "shared", "--calib", cals}, args...))
		if err := c.ExecuteContext(context.Background()); err != nil {
			t.Fatal(err, out.String())
		}
		if len(args) == 0 {
			if !strings.Contains(out.String(), "(simulated)") || !strings.Contains(out.String(), "computer-use") {
				t.Errorf("printed %q", out.String())
			}
			continue
		}
		var f Figures
		if err := json.Unmarshal(out.Bytes(), &f); err != nil || f.Turns < 100 || f.HitRate < 0.95 {
			t.Errorf("%v: %+v", err, f)
		}
	}
}
