// Package agree runs the same agents twice, in the simulated cell and on a live stack of
// simulated engines, and compares what the planner decides: does the virtual clock show
// what a live cell would do?
//
// Read agree.go first (how two logs of role changes are compared), then script.go (the
// agents, taken from a simulated run), virtual.go and live.go (the two runs).
//
// The agreement is the share of the role changes of both logs, of the longer one, that
// pair up: the same direction, in the same order, at most ToleranceS apart. Of executors
// that have the same role either may be the one that changes: which holds the fewest
// turns at that moment is a tie that chance breaks. Such pairs agree, and are counted.
// Changes that only one log has are listed; so is the share of the time in which both
// cells had the same split, and turns per second and the time to the first token, which
// a live machine that is busy with other things spoils first.
//
// A live stack with speed N has engines that take 1/N of the modelled time, agents that
// wait 1/N of theirs, and a planner whose own times stay as they are. So the simulated
// cell gets engines and agents of that speed too, and both logs are in the same seconds.
package agree
