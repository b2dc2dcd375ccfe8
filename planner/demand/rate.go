package demand

import "math"

// Rate is a rate per second, smoothed over two windows.
type Rate struct {
	Fast float64 `json:"f"`
	Slow float64 `json:"s"`
	Seen float64 `json:"n"` // seconds that were added, up to a few windows
}

// Windows of a Rate in seconds: Fast follows a change of work within the time that a
// role change takes to show, Slow tells a trend from it.
const (
	FastWindow = 6.0
	SlowWindow = 60.0
)

// Add notes that amount came within dt seconds. At the start the windows are as long as
// what was seen, so the first samples do not start from zero.
func (r *Rate) Add(amount, dt float64) {
	if !(dt > 0) || !Finite(amount) || amount < 0 {
		return
	}
	r.Seen = min(r.Seen+dt, 10*SlowWindow)
	rate := amount / dt
	r.Fast += (rate - r.Fast) * weight(dt, min(FastWindow, r.Seen))
	r.Slow += (rate - r.Slow) * weight(dt, min(SlowWindow, r.Seen))
}

func weight(dt, window float64) float64 {
	if dt >= window {
		return 1
	}
	return 1 - math.Exp(-dt/window)
}

// Ahead is the rate expected on average over the next seconds: the trend between the two
// windows goes on for a while, but never beyond double or half of what is now.
func (r *Rate) Ahead(seconds float64) float64 {
	trend := (r.Fast - r.Slow) / (SlowWindow - FastWindow)
	return min(max(r.Fast+trend*min(seconds, FastWindow*2)/2, r.Fast/2), r.Fast*2)
}

// Total follows a number that somebody else counts up.
type Total struct {
	Last float64 `json:"l"`
	Set  bool    `json:"k"`
}

// Step takes the next value and returns how much came since the last one. A smaller
// value means that the counter began anew: what came is unknown then, and ok is false,
// as it is with the first value, or one that is no count at all.
func (t *Total) Step(v float64) (came float64, ok bool) {
	if !Finite(v) || v < 0 {
		return 0, false
	}
	came, ok = v-t.Last, t.Set && v >= t.Last
	t.Last, t.Set = v, true
	if !ok {
		return 0, false
	}
	return came, true
}

// Finite reports whether x is a number that can be computed with.
func Finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Level is a number that goes up and down, smoothed over the fast window.
type Level struct {
	Mean float64 `json:"m"`
	Seen float64 `json:"n"`
}

// Add notes that the level was x for dt seconds.
func (l *Level) Add(x, dt float64) {
	if !(dt > 0) || !Finite(x) || x < 0 {
		return
	}
	l.Seen = min(l.Seen+dt, 10*SlowWindow)
	l.Mean += (x - l.Mean) * weight(dt, min(LevelWindow, l.Seen))
}

// LevelWindow is shorter than FastWindow: what waits is no estimate, it is there.
const LevelWindow = 3.0
