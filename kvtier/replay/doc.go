// Package replay runs a recorded or generated load through weir's own lineage and
// eviction, without a model and faster than time passes, and beside it through other
// policies and the best that any could do.
//
// Read script.go first (what each call says), record.go (lineage hears it, and the log
// of what that means to a tier), then tier.go (the log against the shipped table and
// keeper), belady.go (the bound) and lru.go, leaf.go (baselines).
//
// The load is open: an answer takes as long as it was recorded to take, whether its
// prompt was found or not. A prompt finds its leading blocks that are in memory at its
// start; all its blocks are in memory from then on, as far as the policy has room, and
// those of its answer from its end on.
package replay
