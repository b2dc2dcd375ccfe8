package media

import (
	"testing"
)

// TestMedia: screenshots are stored once, and no image shares a block with another.
func TestMedia(t *testing.T) {
	o, err := Try(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d steps in %s: %d MB sent, %d MB of distinct images, %d MB stored; %d of %d prompt tokens found",
		steps, o.Took, o.Sent/1e6, o.Distinct/1e6, o.Stored/1e6, o.Cached, o.Prompt)
	if o.Distinct < 30e6 {
		t.Errorf("the screenshots have %d bytes", o.Distinct)
	}
	if ratio := float64(o.Stored) / float64(o.Distinct); ratio > 1.1 || ratio < 0.9 {
		t.Errorf("the bucket holds %.3f times the distinct bytes", ratio)
	}
	if bad := o.Crossed(); len(bad) > 0 {
		t.Errorf("blocks of other images were taken: %v", bad)
	}
	if bad := o.NotFound(); len(bad) > 0 {
		t.Errorf("equal images were not found again: %v", bad)
	}
}
