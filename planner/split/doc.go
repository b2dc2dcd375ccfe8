// Package split says what a split of executors into prefill and decode is worth.
//
// Agents work in a closed loop: a turn that waits for prefill is a turn that does not
// decode, and whose next one does not come. So the value of a split is not how busy it keeps
// executors but how much work it gets done per second, in worker seconds of both phases
// together, each at what it costs when steps are full:
//
//	           waits, runs            waits, runs
//	arrive --> [ P prefill ] -- x --> [ D decode ] --> end
//	   ^                                               |
//	   +--------------- think, next turn --------------+
//
// value = x·(prefill work of a turn) + y·(decode work of a token)
//
// where y is tokens per second, half of it as they are generated and half when a turn
// ends, each turn as long as the mean one.
//
// Read split.go (State is what is known), then fluid.go (what becomes of it with another
// split).
package split
