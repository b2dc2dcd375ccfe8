// Package llamacpp is the default engine of weir: the llama.cpp shared
// libraries, bound through purego without cgo.
//
// Read library.go first (how the libraries are found, loaded and checked), then
// engine.go (one model with its slots, and the rules that Step enforces), then
// state.go (the layout of an exported sequence and how blocks are cut from it).
//
// llama.cpp ends its process on misuse, so every argument is checked in Go before
// a call is made. A crash can still happen; an executor is therefore an OS
// process of its own and the KV tier lives outside of it.
//
// Ownership: an Engine, and every Constraint made by it, belongs to one goroutine.
// A VocabModel may be used by many. No method needs runtime.LockOSThread: the
// library keeps no thread-local state for CPU, CUDA or Vulkan contexts that
// outlives a call. Each of them blocks its OS thread while it runs.
//
// The library's worker threads spin while they wait. Keep Options.Threads at 1
// unless the sum over all executors of a host stays below its cores: two spinning
// threads on two busy cores were 300 times slower than one.
package llamacpp
