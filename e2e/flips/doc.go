// Package flips changes the roles of executors while agents work on them, and counts
// what that costs: turns, tokens, blocks and time.
//
// Read script.go (what the agents do), agents.go (doing it), watch.go (what executors
// and streams say meanwhile), change.go (role changes), calm.go (the same turns without
// them), then flips.go and kills.go, which put it together.
package flips
