package split

import (
	"math"

	"github.com/weir-dev/weir/planner/demand"
)

// State is what a pool does now, as far as its router and executors tell. Sizes are in
// executors of size 1, times in seconds.
type State struct {
	Model demand.Model

	Prefill, Decode float64 // size that does each now
	Mixed           float64 // size that does both, half of it counted for each

	Rate     float64 // turns that become ready, per second
	Ended    float64 // turns that end, per second
	TurnWork float64 // prefill work of a turn
	Output   float64 // tokens of an answer

	InPrefill  float64 // turns that are prefilled, or wait for it
	WaitWork   float64 // prefill work of those that wait or run
	InDecode   float64 // turns that decode
	WaitDecode float64 // turns that wait for a decode slot
	Context    float64 // tokens of context per turn that decodes

	Slots float64 // sequences per size 1 that can decode; 0: no bound
	KV    float64 // tokens of context that fit per size 1; 0: no bound
}

// Think is how soon, in seconds, a turn that left prefill is followed by the next one of
// its agent where decode is short: what agents' tools take. It bounds what a queue before
// prefill may come to.
const Think = 8.0

// Outcome of a split.
type Outcome struct {
	Value  float64 // work per second
	Flow   float64 // turns per second through prefill
	Tokens float64 // tokens per second
	Why    string  // what holds it back: prefill, decode, kv, demand
}

// Batch is how many sequences decode at once per size 1, by slots and KV memory.
func (s *State) Batch() (n float64, kv bool) {
	n = s.Slots
	if n <= 0 {
		n = 256
	}
	if s.KV > 0 && s.Context > 0 && s.KV/s.Context < n {
		return max(1, s.KV/s.Context), true
	}
	return n, false
}

// Unit is the decode work of a token: what it costs at a full batch.
func (s *State) Unit() float64 {
	b, _ := s.Batch()
	if r := s.Model.TokenRate(b, s.Context); r > 0 {
		return 1 / r
	}
	return 0
}

// tokens is what d executors generate per second when n turns are there to decode.
func (s *State) tokens(d, n float64) float64 {
	if d <= 0 || n <= 0 {
		return 0
	}
	b, _ := s.Batch()
	b = min(b, n/d)
	if b < 1 { // fewer turns than executors
		return n * s.Model.TokenRate(1, s.Context)
	}
	return d * s.Model.TokenRate(b, s.Context)
}

// Demand is the work per second that prefill would get if it were never waited for, and
// that of decode at full batches.
func (s *State) Demand() (prefill, decode float64) {
	return s.free() * s.TurnWork, s.tokens(s.Decode+s.Mixed/2, s.InDecode+s.WaitDecode) * s.Unit()
}

// free is the rate of turns if prefill took no time: those that wait there would be
// back as often as the others.
func (s *State) free() float64 {
	waiting := max(0, s.InPrefill-s.Rate*s.alone())
	return s.Rate + waiting/Think
}

// alone is what prefill takes without waiting.
func (s *State) alone() float64 { return max(s.TurnWork, s.Model.Launch) }

// Value is what a split into p and d executors, mixed ones besides, would do.
func (s *State) Value(p, d float64) Outcome {
	p, d = p+s.Mixed/2, d+s.Mixed/2
	now := s.Decode + s.Mixed/2
	n := s.InDecode + s.WaitDecode
	batch, kv := s.Batch()
	out := Outcome{Why: "demand"}
	out.Tokens = s.tokens(d, n)

	// How much of the loop's rate prefill lets through.
	out.Flow = s.through(p)
	if s.TurnWork > 0 && out.Flow >= 0.95*p/s.TurnWork {
		out.Why = "prefill"
	}
	// When decode is full, turns get through as fast as others end there.
	if cap := d * batch; n >= 0.98*cap && n > 0 {
		out.Why = "decode"
		if kv {
			out.Why = "kv"
		}
		if was := s.tokens(now, n); was > 0 && s.Ended > 0 {
			out.Flow = min(out.Flow, s.Ended*out.Tokens/was)
		}
	}
	out.Value = out.Flow*s.TurnWork + out.Tokens*s.Unit()
	return out
}

// through is the rate at which p executors prefill, with the rest of the loop as it is:
// the rate at which a turn's cycle, whose prefill part depends on p, fits the turns that
// are in the loop.
func (s *State) through(p float64) float64 {
	free := s.free()
	if p <= 0 || free <= 0 {
		return 0
	}
	if s.TurnWork <= 0 {
		return free
	}
	most := p / s.TurnWork
	// x = free·T / (T + W(x)), with T the time between an agent's turns and W the wait at
	// p servers (Sakasegawa 1977): solved by halving, W grows with x.
	cycle := Think + s.alone()
	lo, hi := 0.0, min(free, most*0.999)
	for range 30 {
		x := (lo + hi) / 2
		if x*(cycle+wait(p, x/most, s.alone())) <= free*cycle {
			lo = x
		} else {
			hi = x
		}
	}
	return lo
}

// wait is the mean wait of an M/M/c queue with p servers at that load, in the
// approximation of Sakasegawa: S·ρ^(√(2(p+1))−1) / (p·(1−ρ)).
func wait(p, load, service float64) float64 {
	if load <= 0 {
		return 0
	}
	if load >= 1 {
		return math.Inf(1)
	}
	return service * math.Pow(load, math.Sqrt(2*(p+1))-1) / (p * (1 - load))
}
