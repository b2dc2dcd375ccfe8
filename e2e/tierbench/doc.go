// Package tierbench measures the shared KV memory against what the machine itself
// can do, in one run: copies with checksum against memcpy of the same blocks, taken
// in turns, so that a machine that slows down slows both. All through the exported
// API, with a daemon and a client as executors use them.
//
// Read bench.go, then copies.go, index.go and evict.go.
package tierbench
