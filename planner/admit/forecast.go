package admit

import "github.com/weir-dev/weir/schemas"

// horizons are the points at which the contexts of all sessions together are foretold:
// now, and after eighths of a mean session, in turns. Time would stretch when turns are
// slow.
const horizons = 9

// maxTurns of a session are told apart.
const maxTurns = 1024

// forecast foretells what the contexts of the admitted sessions will take together.
// Sessions that began together grow together, and would exceed memory long after they
// were admitted; among sessions of all ages some end while others grow.
//
// How long sessions live is estimated as Kaplan and Meier do: those that run tell that
// one may live as long as they have. The mean of those that ended would be that of the
// shortest, for as long as most still run.
type forecast struct {
	cfg   Config
	at    [horizons]float64 // tokens, whole
	stale bool

	ended   [maxTurns]float64 // sessions that ended after so many turns, the last ones counting most
	alive   [maxTurns]float64 // share of sessions that have more turns than that
	longest int               // turns that some session has come to, less one
	mean    float64           // turns of a session, as far as alive tells
	size    [maxTurns]float64 // tokens of a context at so many turns, mean
	sizes   [maxTurns]int     // turns that size is a mean of
	aged    int               // most turns of which a size is known

	last schemas.Time // when a session ended last
	gap  float64      // seconds between ends, mean of the last ones
	ends int
}

// fade is by how much every end of a session makes the earlier ones count less: some
// 500 are remembered. lately is the weight of the newest sample in other means.
const (
	fade   = 0.998
	lately = 0.1
)

// grown learns from the context of a session at its n-th turn, from 1 on: as they grow,
// some are compacted.
func (f *forecast) grown(n, tokens int) {
	i := min(n, maxTurns) - 1
	f.sizes[i]++
	f.size[i] += max(0.02, 1/float64(f.sizes[i])) * (float64(tokens) - f.size[i])
	f.aged = max(f.aged, i)
}

// growth is what a context is expected to grow by in so many turns from the n-th on.
func (f *forecast) growth(n, ahead int) float64 {
	from, to := min(n-1, f.aged), min(n-1+ahead, f.aged)
	return f.size[to] - f.size[from]
}

// perTurn is the growth of a context in a turn; 0 while that is not known.
func (f *forecast) perTurn() float64 {
	if f.aged == 0 {
		return 0
	}
	return max(0, f.size[f.aged]-f.size[0]) / float64(f.aged)
}

// gone learns from a session that ended.
func (f *forecast) gone(now schemas.Time, s *session) {
	f.stale = true
	if f.last > 0 {
		f.gap += max(lately, 1/float64(f.ends+1)) * (max(0, float64(now-f.last)/1e9) - f.gap)
		f.ends++
	}
	f.last = max(f.last, now)
	if s.whole {
		for i := range f.ended {
			f.ended[i] *= fade
		}
		f.ended[min(s.turns, maxTurns-1)]++
	}
}

// every is the seconds between two ends of sessions; 0 while that is not known.
func (f *forecast) every(now schemas.Time) float64 {
	if f.ends < 2 {
		return 0
	}
	// When none has ended for longer than that, the mean no longer holds.
	return max(f.gap, float64(now-f.last)/1e9)
}

// refresh computes the forecast anew.
func (f *forecast) refresh(b *Book) {
	if !f.stale {
		return
	}
	f.stale = false
	var running [maxTurns]float64
	for _, s := range b.sessions {
		if s.whole {
			running[min(s.turns, maxTurns-1)]++
		}
	}
	f.survival(&running)
	f.at = [horizons]float64{}
	for _, s := range b.sessions {
		if !s.away {
			f.add(s)
		}
	}
}

// survival estimates how long sessions live.
func (f *forecast) survival(running *[maxTurns]float64) {
	risk, longest := 0.0, 0 // sessions that had at least so many turns
	for i := range maxTurns {
		n := f.ended[i] + running[i]
		if risk += n; n > 0.01 {
			longest = i
		}
	}
	alive, mean := 1.0, 0.0
	for i := range maxTurns {
		if d := f.ended[i]; risk > 0.01 && d > 0 {
			alive *= max(0, 1-d/risk)
		}
		risk -= f.ended[i] + running[i]
		f.alive[i] = alive
		if i <= longest {
			mean += alive
		}
	}
	f.mean, f.longest = max(1, mean), longest
}

// step is how many turns lie between two horizons.
func (f *forecast) step() float64 { return max(1, f.mean/(horizons-1)) }

// add adds one session.
func (f *forecast) add(s *session) {
	for i := range f.at {
		f.at[i] += f.of(i, s.turns, s.final, s.tokens, s.running == 0 && s.turns > 0, s.once)
	}
}

// of is what a context of so many tokens, of a session with so many turns, is expected to
// take at one horizon, in whole tokens: then the sum is the same in every order. It grows
// as those before it did, and is gone when its session has ended, as one that is idle may
// have, and one that is not to come back will have. While it is not known how long half of
// those live that have come so far, it may grow to final.
func (f *forecast) of(horizon, turns, final, tokens int, idle, once bool) float64 {
	switch {
	case once && horizon > 0:
		return 0
	case horizon > 0 && f.alive[f.longest] >= f.alive[min(max(turns, 1), maxTurns)-1]/2:
		return float64(max(tokens, final))
	}
	turns = min(max(turns, 1), maxTurns)
	ahead := float64(horizon) * f.step()
	grown := max(0, float64(tokens)+f.growth(turns, int(ahead)))
	share, later := 1.0, int(ahead)
	if idle {
		later = max(later, 1)
	}
	if now := f.alive[turns-1]; now > 0 {
		share = f.alive[min(turns-1+later, maxTurns-1)] / now
	}
	return float64(int(grown * share))
}

// fits reports whether a session that begins with so many tokens and is assumed to end
// with final fits at every horizon.
func (f *forecast) fits(tokens, final int, once bool, capacity float64) bool {
	for i := range f.at {
		if x := f.of(i, 0, final, tokens, false, once); x > 0 && f.at[i]+x > capacity {
			return false
		}
	}
	return true
}
