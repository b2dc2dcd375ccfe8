package quarantine

import (
	"context"
	"testing"
	"time"
)

// TestQuarantine: an executor with a sick device is out of work within 10 s and back
// within 10 s of its device being sound, no turn fails, and both phases are always there.
func TestQuarantine(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	f, err := Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *f)
	if f.QuarantineS > 10 || f.ReleaseS > 10 || f.Turns == 0 || !f.Phases {
		t.Errorf("%+v; wanted are at most 10 s each, turns, and both phases throughout", *f)
	}
}
