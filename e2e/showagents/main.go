// Command showagents prints the figures of how agents talk to weir, one JSON line
// each, from runs that it makes itself.
//
// Read parts.go first: the list of runs and the figures that each yields.
package main

import "github.com/weir-dev/weir/e2e/show"

func main() { show.Main("showagents", parts()) }
