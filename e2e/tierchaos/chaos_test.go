package tierchaos

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

// TestChaos: processes that are killed and stopped at random, and flipped bits, never
// change a byte that is served, lose a sealed block at a restart, or leak memory.
func TestChaos(t *testing.T) {
	opt := Options{Seed: 7, Log: t.Logf}
	if os.Getenv("WEIR_TIERCHAOS") == "long" {
		opt = Long()
		opt.Log = t.Logf
	}
	r, err := Run(t.Context(), opt)
	t.Logf("%+v", r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Reads == 0 || r.Puts == 0 || r.Kills == 0 || r.Restarts == 0 || r.Stops == 0 || r.Evictions == 0 ||
		r.Checked == 0 || r.Probes == 0 || r.Flips == 0 || r.HeaderFlips == 0 {
		t.Errorf("the run shows nothing: %+v", r)
	}
}
