// Package agree runs the same agents twice, in the simulated cell and on a live stack of
// simulated engines, and compares what the planner decides: does the virtual clock show
// what a live cell would do?
//
// Read agree.go first (how two logs of role changes are compared), then script.go (the
// agents, taken from a simulated run), virtual.go and live.go (the two runs).
//
// A live stack with speed N has engines that take 1/N of the modelled time, agents that
// wait 1/N of theirs, and a planner whose own times stay as they are. So the simulated
// cell gets engines and agents of that speed too, and both logs are in the same seconds.
package agree
