// Package route decides which executor does which stage of which turn.
//
// Read router.go first (what comes in), then place.go (late binding: work stays
// here until an executor has room), cost.go (what a prompt costs where), directory.go
// and resync.go (which node holds how much of it), then reap.go (what happens to the
// turns of an executor that died, and to a turn that kills executors).
//
// The router is an actor: one per cell is active, by lease. It keeps nothing on
// disk. READY holds every turn without a result, and heartbeats tell what
// executors hold, so a restarted router knows all within two heartbeats. It asks each
// node for its list of blocks once.
package route
