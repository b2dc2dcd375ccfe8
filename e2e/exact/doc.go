// Package exact shows that where a turn is computed does not show in what it says:
// prefill in one process and decode in another give the tokens, and in shared memory
// the KV bytes, of a run in one process that found the same blocks.
//
// Read case.go (the matrix), then run.go (how a case runs on a stack), then
// reference.go (the one-process run it is compared with).
package exact
