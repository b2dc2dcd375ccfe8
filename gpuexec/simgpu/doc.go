// Package simgpu is an accelerator worker that takes the modelled time and computes
// nothing: it does an executor's operations in closed form, with the coefficients of a
// calibration file (schemas/calib).
//
// Read config.go (what it is told), then device.go (operations and when they end),
// decode.go and prefill.go (the closed forms), kept.go (the engine's KV memory),
// links.go (transfers that share a link).
//
// Modelled: prefill step by step with chunks, data-parallel ranks that wait for the
// fullest one, and the launch floor of small steps; decode runs with accepted tokens
// per step, growing context, and an end at any step; KV memory with the contexts of
// turns that are over; imports and hand-overs with latency and fair share; the time of a
// role change. Not modelled: tokens and texts, engine failures, copies out of the engine
// as work of the engine (they share the link only), sampling, CPU time.
package simgpu
