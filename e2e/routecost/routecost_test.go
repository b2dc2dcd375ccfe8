package routecost

import (
	"testing"
	"time"
)

// TestDecision: the bar of 200 µs, with room for a machine that is shared.
func TestDecision(t *testing.T) {
	if testing.Short() {
		t.Skip("fills three cells")
	}
	c, err := Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("p50 %s, p99 %s, max %s of %d messages that placed %d jobs", c.P50, c.P99, c.Max, c.Messages, c.Placed)
	if c.Placed < 1000 {
		t.Errorf("only %d jobs were placed: the measurement shows nothing", c.Placed)
	}
	if c.P99 > 400*time.Microsecond {
		t.Errorf("p99 %s", c.P99)
	}
}
