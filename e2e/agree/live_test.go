package agree

import (
	"errors"
	"testing"

	"github.com/weir-dev/weir/e2e/scenarios"
)

// A handful of agents do all their turns on a live stack as they do in the simulated
// cell. What the figure compares needs more of them, and a quiet machine.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: engines take the modelled time")
	}
	out, err := Run(t.Context(), Options{Size: Size{Share: 0.0008, Slots: 0.02, Seed: 3}, Speed: 4, Record: t.TempDir()}, nil)
	if errors.Is(err, scenarios.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range out {
		t.Log(o)
		if o.Real.Turns != o.Simulated.Turns || o.Real.Turns == 0 {
			t.Errorf("%s: %d turns live, %d simulated", o.Policy, o.Real.Turns, o.Simulated.Turns)
		}
		if o.Policy == Static && len(o.Real.Changes) > 0 {
			t.Errorf("a static split changed its roles: %+v", o.Real.Changes)
		}
	}
}
