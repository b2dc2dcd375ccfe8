// Command showroles prints the figures of roles that follow the work, one JSON line each,
// from runs that it makes itself: role changes on real engines, faults in the midst of
// them, decisions and what they cost, and the registered scenarios in the simulated cell.
//
// Read parts.go first: the list of runs and the figures that each yields. Figures with a
// bar say whether they met it; the command fails when one of those that are about right
// and wrong does not.
package main

import "github.com/weir-dev/weir/e2e/show"

func main() { show.Main("showroles", parts()) }
