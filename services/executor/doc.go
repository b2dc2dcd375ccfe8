// Package executor is the process that owns one engine: it connects the executor
// actor (package gpuexec) to NATS, to the engine and to the shared KV memory.
//
// Read executor.go (what runs), then tier.go (blocks in shared memory) and
// ask.go (what a job still needs from the bus).
package executor
