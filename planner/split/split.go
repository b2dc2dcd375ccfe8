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
	Mix      Mix     // tokens of an answer

	InPrefill  float64 // turns that are prefilled, or wait for it
	WaitWork   float64 // prefill work of those that wait or run
	InDecode   float64 // turns that decode
	WaitDecode float64 // turns that wait for a decode slot
	Context    float64 // tokens of context per turn that decodes

	Slots float64 // sequences per size 1 that can decode; 0: no bound
	KV    float64 // tokens of context that fit per size 1; 0: no bound
}

// Think is how long, in seconds, an agent takes between an answer and its next turn. As
// many think as the rate of turns needs, so a wrong value changes how soon a better split
// shows, not which one is better.
const Think = 5.0

// Outcome of a split.
type Outcome struct {
	Value  float64 // work per second
	Flow   float64 // turns per second that begin to decode: one that was prefilled and waits helps nobody
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

// Demand is the work per second that prefill is asked for, with what waits there spread
// over the time between an agent's turns, and that which decode does.
func (s *State) Demand() (prefill, decode float64) {
	waiting := max(0, s.InPrefill-s.Rate*s.alone())
	d := s.Decode + s.Mixed/2
	if d > 0 && s.InDecode > 0 {
		b := max(s.InDecode/d, min(1, s.InDecode))
		decode = s.InDecode * s.Model.TokenRate(b, s.Context) / b * s.Unit()
	}
	return (s.Rate + waiting/Think) * s.TurnWork, decode
}

// alone is what prefill takes without waiting.
func (s *State) alone() float64 { return s.Model.Alone(s.TurnWork) }

// Horizon is how many seconds ahead a split is valued. Beyond that the work that flows
// by is another one, or the planner has looked again.
const Horizon = 30.0

// Value is what a split into p and d executors, mixed ones besides, would do per second.
func (s *State) Value(p, d float64) Outcome {
	return s.loop(p+s.Mixed/2, d+s.Mixed/2, Horizon)
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
