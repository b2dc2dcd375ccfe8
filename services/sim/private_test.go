package sim

import (
	"context"
	"path/filepath"
	"testing"
)

// TestPrivateStays: with memories of their own, and more sessions than prefill keeps up
// with, sessions stay where their context is, and no executor idles (invariant 12).
func TestPrivateStays(t *testing.T) {
	sc, err := LoadScenario(filepath.Join(given(t, "scenarios"), "shift-math-to-computer-use.json"))
	if err != nil {
		t.Fatal(err)
	}
	cal, err := LoadCalibration(given(t, "calib"), "glm-5.2_gb300_dep4", 1)
	if err != nil {
		t.Fatal(err)
	}
	sc.Phases = sc.Phases[1:]
	sc.Phases[0].Sessions, sc.Phases[0].DurationS, sc.Phases[0].DiscardS = 0, 60, 20
	sys, err := ParseSystem("static:6", sc.Cluster.Workers, cal, 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Run(context.Background(), sc, sys, Options{Cal: cal, Load: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if f.Recompute > 1.2 || f.TurnsPerS < 90 {
		t.Errorf("%.1f turns/s, %.2f tokens were computed for each new one", f.TurnsPerS, f.Recompute)
	}
}
