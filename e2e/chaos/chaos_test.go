package chaos

import (
	"testing"
	"time"

	"github.com/weir-dev/weir/e2e/stack"
)

// engines are those to test: all in the long form, the default one in the short.
func engines() []string {
	switch {
	case stack.Libraries() == "":
		return []string{"go"}
	case testing.Short():
		return []string{"llama"}
	}
	return []string{"llama", "go"}
}

// TestFaults runs turns under random faults. The short form has one fault of each
// kind that is over soon; the long form is `make e2e`, and `make show-turn` prints
// its figures.
func TestFaults(t *testing.T) {
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) { faults(t, engine) })
	}
}

func faults(t *testing.T, engine string) {
	o := Options{
		Seed: uint64(time.Now().UnixNano()), Turns: 24, Sessions: 6, PerKind: 1,
		Kinds: []string{DecodeKill, PrefillKill, TierKill, ControlKill, NATSKill}, Log: t.Logf, Engine: engine,
	}
	if !testing.Short() {
		o.Turns, o.Sessions, o.PerKind, o.Kinds = 200, 8, 4, Kinds()
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("seed %d: %v", o.Seed, err)
	}
	for _, p := range r.Problems {
		t.Errorf("seed %d: %s", o.Seed, p)
	}
	if r.Lost+r.Duplicated+r.Changed > 0 || r.Turns < o.Turns {
		t.Errorf("seed %d: %d turns, %d lost, %d tokens or results repeated, %d tokens changed", o.Seed, r.Turns, r.Lost, r.Duplicated, r.Changed)
	}
	for _, k := range o.Kinds {
		t.Logf("%s: %d hits, p95 %.2f s", k, r.Hits[k], r.P95(k))
		if r.Hits[k] < o.PerKind {
			t.Errorf("seed %d: %s hit work %d times, wanted %d", o.Seed, k, r.Hits[k], o.PerKind)
		}
	}
}
