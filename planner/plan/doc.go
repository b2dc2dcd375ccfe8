// Package plan is the planner: the actor that decides which executors of a cell prefill
// and which decode.
//
// Read planner.go first (what comes in, what happens once a second), then decide.go (the
// rules in their order, and what each says), inputs.go (reports and loads become rates,
// whatever they claim), health.go (who is fit, what happens when a phase has nobody),
// and publish.go (how decisions leave). What work is stands in planner/demand, what a
// split is worth in planner/split, when roles may change in planner/flip.
//
// One planner is active per cell, by lease; each pool of the cell is planned by itself.
// Roles change by messages that executors obey while they run, so a planner that is gone
// costs nothing but its foresight: everything goes on with the roles that it left.
package plan
