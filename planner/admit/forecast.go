package admit

import "github.com/weir-dev/weir/schemas"

// horizons are the points in time at which the contexts of all sessions together are
// foretold: now, and eighths of a mean life.
const horizons = 9

// enough sessions that ended tell how long one lives and how far it grows.
const enough = 8

// forecast foretells what the contexts of the admitted sessions will take together.
// Sessions that began together grow together, and would exceed memory long after they
// were admitted; among sessions of all ages some end while others grow.
type forecast struct {
	cfg   Config
	at    [horizons]float64 // tokens
	stale bool

	count  int     // sessions that ended and were seen from their first turn on
	life   float64 // seconds, mean of those that ended lately
	growth float64 // last context over the first one, likewise

	last schemas.Time // when a session ended last
	gap  float64      // seconds between ends, mean of the last ones
	ends int
}

// lately is the weight of the newest sample in a mean of the last ones.
const lately = 0.1

func mean(m *float64, n int, v float64) {
	if n == 0 {
		*m = v
		return
	}
	*m += max(lately, 1/float64(n+1)) * (v - *m)
}

// ended learns from a session that ended.
func (f *forecast) ended(now schemas.Time, s *session) {
	f.stale = true
	if f.last > 0 {
		mean(&f.gap, f.ends, max(0, float64(now-f.last)/1e9))
		f.ends++
	}
	f.last = max(f.last, now)
	if !s.whole {
		return
	}
	mean(&f.life, f.count, max(0, float64(now-s.since)/1e9))
	mean(&f.growth, f.count, max(1, float64(s.tokens)/float64(s.first)))
	f.count++
}

// every is the seconds between two ends of sessions; 0 while that is not known.
func (f *forecast) every(now schemas.Time) float64 {
	if f.ends < 2 {
		return 0
	}
	// When none has ended for longer than that, the mean no longer holds.
	return max(f.gap, float64(now-f.last)/1e9)
}

// lives is the mean life in seconds, and the factor by which a context grows in it.
func (f *forecast) lives() (life, growth float64, known bool) {
	if f.count < enough {
		return float64(f.cfg.LifeNS) / 1e9, f.cfg.Growth, false
	}
	return max(f.life, 1), f.growth, true
}

// refresh computes the forecast anew.
func (f *forecast) refresh(now schemas.Time, b *Book) {
	if !f.stale {
		return
	}
	f.stale = false
	f.at = [horizons]float64{}
	for _, s := range b.sessions {
		f.add(now, s)
	}
}

// add adds one session. Contributions are whole tokens, so that the sum is the same in
// every order.
func (f *forecast) add(now schemas.Time, s *session) {
	for i := range f.at {
		f.at[i] += f.of(i, s.first, s.tokens, float64(now-s.since)/1e9)
	}
}

// of is what a context takes at one horizon: it grows evenly until its session ends. One
// that lives longer than the mean is expected to live on for a tenth of it.
func (f *forecast) of(horizon, first, tokens int, age float64) float64 {
	life, growth, known := f.lives()
	final := max(float64(tokens), float64(first)*growth)
	if !known {
		if horizon == 0 {
			return float64(tokens)
		}
		return float64(int(final)) // nobody has ended yet: all may grow to the end
	}
	left, at := max(life-age, life/10), life*float64(horizon)/(horizons-1)
	if at > left {
		return 0
	}
	return float64(int(float64(tokens) + (final-float64(tokens))*at/left))
}

// fits reports whether a session whose first context has so many tokens fits at every
// horizon.
func (f *forecast) fits(now schemas.Time, tokens, capacity int) bool {
	for i := range f.at {
		if f.at[i]+f.of(i, tokens, tokens, 0) > float64(capacity) {
			return false
		}
	}
	return true
}
