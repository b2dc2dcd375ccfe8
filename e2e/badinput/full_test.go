package badinput

import (
	"errors"
	"testing"
)

// TestFullStreams: streams that refuse lose nothing that was acknowledged.
func TestFullStreams(t *testing.T) {
	t.Parallel()
	out := &Full{}
	check(t, out, FullStreams(t.Context(), out))
}

// TestFullDisk: nor does a disk that is full.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	out := &Full{}
	err := FullDisk(t.Context(), out)
	if errors.Is(err, ErrNoMount) {
		t.Skip(err)
	}
	check(t, out, err)
}

func check(t *testing.T, out *Full, err error) {
	t.Helper()
	for _, n := range out.Notes {
		t.Log(n)
	}
	if err != nil {
		t.Error(err)
	}
	for _, l := range out.Lost {
		t.Error(l)
	}
	if out.Acked < 20 {
		t.Errorf("only %d turns were acknowledged", out.Acked)
	}
}
