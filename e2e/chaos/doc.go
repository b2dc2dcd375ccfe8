// Package chaos kills, stops and cuts off parts of a running stack while turns
// are in flight, and counts what that does to the turns.
//
// Read chaos.go (the run), then faults.go (what is done to whom), then check.go
// (what counts as lost, repeated or changed).
package chaos
