package decide

import (
	"testing"
	"time"
)

// A small cell's planner decides and is timed. How long it took is for the figures: a
// shared machine says little.
func TestSmall(t *testing.T) {
	s := Size{Cells: 2, Executors: 24, Seconds: 130}
	p, changes, err := Planner(s)
	if err != nil {
		t.Fatal(err)
	}
	if p.N < s.Cells*s.Seconds/2 || p.P50 <= 0 || p.Max < p.P99 {
		t.Errorf("planner: %+v", p)
	}
	if changes == 0 {
		t.Error("no role changed although the work swings")
	}
	t.Logf("%+v, %d roles changed", p, changes)
}

func TestTimes(t *testing.T) {
	var ds []time.Duration
	for i := range 200 {
		ds = append(ds, time.Duration(200-i))
	}
	if got := times(ds); got != (Times{N: 200, P50: 101, P99: 199, Max: 200}) {
		t.Errorf("%+v", got)
	}
	if got := times(nil); got.N != 0 {
		t.Errorf("%+v", got)
	}
}
