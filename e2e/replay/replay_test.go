package replay

import (
	"context"
	"testing"
	"time"
)

// TestReplay: what planner and router were told in some seconds of a live stack, through
// the same code again, is answered with the same bytes; also over a kill -9 of both.
func TestReplay(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	f, err := Run(ctx, Options{Kill: true})
	if err != nil {
		t.Fatal(err)
	}
	lives := map[string]int{}
	for _, r := range f.Lives {
		lives[r.Actor]++
		if !r.Identical {
			t.Errorf("%s, epoch %d: line %d answers\n%s\nrecorded was\n%s", r.Actor, r.Epoch, r.First.No, r.First.Replayed, r.First.Recorded)
		}
		t.Logf("%s, epoch %d: %d inputs, %d outputs of %d bytes over %s %s", r.Actor, r.Epoch, r.Inputs, r.Outputs, r.Bytes, r.Span(), r.Cut)
	}
	if lives["planner"] != 2 || lives["router"] != 2 || f.Turns == 0 {
		t.Errorf("lives %v, %d turns", lives, f.Turns)
	}
}
