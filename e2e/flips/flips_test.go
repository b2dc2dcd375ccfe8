package flips

import (
	"os"
	"strconv"
	"testing"

	"github.com/weir-dev/weir/e2e/stack"
)

// TestFlips: roles change under load, and nobody notices.
func TestFlips(t *testing.T) {
	n := 10
	if s := os.Getenv("WEIR_FLIPS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	for _, engine := range []string{"llama", "go"} {
		t.Run(engine, func(t *testing.T) {
			if engine == "llama" && stack.Libraries() == "" {
				t.Skip("the llama.cpp libraries are not installed; `make engine` installs them")
			}
			f, err := Run(t.Context(), Options{Engine: engine, Seed: 1, Flips: n, Log: t.Logf})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(f)
			for _, p := range f.Slow {
				t.Log(p)
			}
			for _, p := range f.Problems {
				t.Error(p)
			}
		})
	}
}

// TestKills: the same with parts that die or stand still in the midst of a change.
func TestKills(t *testing.T) {
	n := Faults{Control: 1, Planner: 2, Executor: 1, Leader: 1, Stopped: 1}
	f, err := RunKills(t.Context(), Options{Engine: "go", Seed: 1, Agents: 4, Log: t.Logf}, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(f)
	for _, p := range f.Problems {
		t.Error(p)
	}
}
