package llamacpp_test

import (
	"errors"
	"testing"

	"github.com/weir-dev/weir/gpuexec"
	"github.com/weir-dev/weir/gpuexec/llamacpp"
)

// TestCutRefuses: lengths that are no cut change nothing.
func TestCutRefuses(t *testing.T) {
	e := openEngine(t, preset(t, "tiny"), llamacpp.Options{Slots: 2, Context: 512})
	prefill(t, e, 0, prompt(130, 1), 0)
	for _, c := range []struct {
		seq gpuexec.SeqID
		n   int
	}{{-1, 0}, {2, 0}, {0, -64}, {0, 65}, {0, 192}, {1, 64}} {
		if err := e.Cut(c.seq, c.n); !errors.Is(err, gpuexec.ErrBadBatch) {
			t.Errorf("cut of sequence %d to %d: %v", c.seq, c.n, err)
		}
	}
	if e.Len(0) != 130 {
		t.Errorf("%d tokens are left", e.Len(0))
	}
	if err := e.Cut(0, 0); err != nil || e.Len(0) != 0 {
		t.Errorf("%d tokens, %v", e.Len(0), err)
	}
}
