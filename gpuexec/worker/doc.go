// Package worker does what the executor actor asks for: it owns one engine and
// performs one operation at a time, synchronously. It holds what a sequence needs
// between operations: tokens, block keys, sampler, grammar and text.
//
// Read worker.go first (the parts and Do), then open.go (what of a prompt is
// already in memory), decode.go (the token loop) and seal.go (export).
//
// The package is pure: engine, tier, keys and the clock come from the caller.
package worker
