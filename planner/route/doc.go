// Package route decides which executor does which stage of which turn.
//
// Read router.go first (what comes in), then pool.go (what waits, by need, and who has
// room for it), place.go (late binding: work stays here until an executor has room) and
// cost.go (what a prompt costs where). directory.go, resync.go and engines.go know who
// holds how much of it; pin.go lets a turn wait for the executor that has its context,
// absorb.go has decode executors take a burst, admission.go lets sessions in. reap.go is
// what happens to the turns of an executor that died, and to a turn that kills executors.
// load.go tells a planner what this router sees.
//
// The router is an actor: one per cell is active, by lease. It keeps nothing on
// disk. READY holds every turn without a result, and heartbeats tell what
// executors hold, so a restarted router knows all within two heartbeats. It asks each
// node for its list of blocks once.
package route
