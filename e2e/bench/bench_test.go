package bench

import (
	"context"
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/stack"
	"github.com/weir-dev/weir/services/model"
)

// value is the figure of that name.
func value(t *testing.T, figures []show.Figure, name string) float64 {
	t.Helper()
	for _, f := range figures {
		if f.Name == name {
			t.Logf("%s: %.4g %s", f.Name, f.Value, f.Unit)
			return f.Value
		}
	}
	t.Fatalf("there is no figure %s among %v", name, figures)
	return 0
}

func floor(t *testing.T, figures []show.Figure, name string, least float64) {
	t.Helper()
	if v := value(t, figures, name); v < least {
		t.Errorf("%s is %.4g, at least %.4g is wanted", name, v, least)
	}
}

// TestGoAgainstLlama: the go engine keeps its share of llama.cpp's speed. Both are
// measured in this process's CPU time, so a shared machine changes little.
func TestGoAgainstLlama(t *testing.T) {
	if stack.Libraries() == "" {
		t.Skip("the llama.cpp libraries are not installed, see README.md")
	}
	rounds := 9
	if testing.Short() {
		rounds = 5
	}
	figures, err := goAgainstLlama(t.TempDir(), rounds)
	if err != nil {
		t.Fatal(err)
	}
	floor(t, figures, "goengine.prefill_vs_llama", 0.25)
	floor(t, figures, "goengine.decode_vs_llama", 0.3)
}

// TestKVAgainstMemcpy: KV is moved at a speed that a copy explains. Ratios outside
// of these bounds mean that the wrong thing was measured.
func TestKVAgainstMemcpy(t *testing.T) {
	engine := model.EngineLlama
	if stack.Libraries() == "" {
		engine = model.EngineGo
	}
	figures, err := KVAgainstMemcpy(t.Context(), t.TempDir(), engine)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kv.export_vs_memcpy", "kv.import_vs_memcpy"} {
		if v := value(t, figures, name); v <= 0.05 || v >= 3 {
			t.Errorf("%s is %.4g, not between 0.05 and 3", name, v)
		}
	}
}

// TestNull: what weir carries on an engine that computes nothing. Machines that check
// changes are slow and shared, so -short asks for a hundredth of the bars: that the load
// runs through and is not stuck. A quarter was missed beside other work.
func TestNull(t *testing.T) {
	turns, tokens := 1000.0, 100_000.0
	if testing.Short() {
		turns, tokens = turns/100, tokens/100
	}
	stack.Build(t) // before the time runs
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	figures, err := Null(ctx, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	floor(t, figures, "null.turns_per_s", turns)
	floor(t, figures, "null.tokens_per_s", tokens)
}
