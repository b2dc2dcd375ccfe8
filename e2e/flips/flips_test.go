package flips

import (
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
)

// short is a load that a small machine does in seconds: a tiny model on the exact engine.
func short(t *testing.T) Options {
	t.Helper()
	path, err := stack.ModelFile("tiny")
	if err != nil {
		t.Fatal(err)
	}
	return Options{Engine: "go", Seed: 1, Agents: 4, Long: 600, Gap: 250 * time.Millisecond, Args: []string{"--model", path, "--ctx", "4096", "--kv-mem", "1GiB"}, Log: t.Logf}
}

func judge(t *testing.T, f *Figures, err error) {
	t.Helper()
	if f != nil {
		t.Log(f)
		for _, s := range f.Slow {
			t.Log(s)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Problems {
		t.Error(p)
	}
	if f.LostTurns+f.ChangedTokens+f.BlocksLost+f.Repeated+f.Stale+f.Missing+f.RolledBack > 0 {
		t.Errorf("%d turns lost, %d tokens changed, %d blocks lost, %d tokens repeated, %d old assignments applied, %d looks without a phase, %d changes given up",
			f.LostTurns, f.ChangedTokens, f.BlocksLost, f.Repeated, f.Stale, f.Missing, f.RolledBack)
	}
	if d := f.HitAfter - f.HitBefore; d < -.01 || d > .01 {
		t.Errorf("hits %.4f with role changes, %.4f without", f.HitAfter, f.HitBefore)
	}
}

// TestFlips: roles change under load, and no turn, token or block is lost. How long that
// takes depends on the machine; `make show-roles` measures it.
func TestFlips(t *testing.T) {
	o := short(t)
	o.Flips = 10
	f, err := Run(t.Context(), o)
	judge(t, f, err)
	if f.Flips != o.Flips || f.Turns == 0 || f.Samples == 0 {
		t.Errorf("%d changes, %d turns, %d looks", f.Flips, f.Turns, f.Samples)
	}
}

// TestKills: the same while parts die in the midst of a change.
func TestKills(t *testing.T) {
	n := Faults{Control: 1, Executor: 1}
	if !testing.Short() {
		n = Faults{Control: 1, Executor: 1, Planner: 1, Leader: 1, Stopped: 1, Last: 1}
	}
	f, err := RunKills(t.Context(), short(t), n)
	judge(t, f, err)
}

// TestLong is a part of what `make show-roles` runs, on llama.cpp.
func TestLong(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	if stack.Libraries() == "" {
		t.Skip("the llama.cpp libraries are not installed; `make engine` installs them")
	}
	f, err := Run(t.Context(), Options{Engine: "llama", Seed: 1, Flips: 20, Long: 500, Log: t.Logf})
	judge(t, f, err)
}
