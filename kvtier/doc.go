// Package kvtier is context storage: which KV blocks stay in memory, how they are
// named, and which go first.
//
// Read key.go and chain.go first (how a block gets its name), then slots.go (the
// table of one pool's slots: free, reserved, sealed, and who is evicted). The
// package is pure: it does no I/O, starts no goroutine, reads no clock. The
// memory itself, shared by the processes of one host, is kvtier/hostmem.
//
//	Spec.Root ──► root key ──► Chain(block 0) ──► Chain(block 1) ──► …
//	                               │                  │
//	                            slot 17            slot 4          Slots
package kvtier
