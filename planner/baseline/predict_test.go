package baseline

import (
	"math"
	"testing"
)

func TestPredictors(t *testing.T) {
	ramp := []float64{0, 0, 10, 20, 30, 40, 50, 60}
	for name, want := range map[string][2]float64{PredictConstant: {60, 60}, PredictKalman: {60.5, 72}} {
		p := newPredictor(name)
		for _, v := range ramp {
			p.Add(v)
		}
		if got := p.Next(); got < want[0] || got > want[1] {
			t.Errorf("%s: a ramp to 60 goes on with %.1f, want %.0f to %.0f", name, got, want[0], want[1])
		}
	}
}

// A filter without points enough forecasts the last one, and a level stays a level.
func TestKalmanLevel(t *testing.T) {
	k := &kalman{}
	k.Add(0)
	k.Add(7)
	if k.N != 1 || k.Next() != 7 {
		t.Errorf("after a zero and 7: %d points, forecast %g", k.N, k.Next())
	}
	for range 40 {
		k.Add(7)
	}
	if math.Abs(k.Next()-7) > 1e-9 {
		t.Errorf("a level of 7 goes on with %g", k.Next())
	}
	for range 40 {
		k.Add(0)
	}
	if k.Next() < 0 {
		t.Errorf("forecast is %g", k.Next())
	}
}
