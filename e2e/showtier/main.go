// Command showtier prints the figures of the KV tier and of its retention order, one
// JSON line each, from runs that it makes itself.
//
// Read parts.go first: the list of runs and the figures that each yields.
package main

import (
	"github.com/weir-dev/weir/e2e/show"
	"github.com/weir-dev/weir/e2e/tierchaos"
)

func main() {
	tierchaos.Child() // does not return in a process that the chaos run started
	show.Main("showtier", parts())
}
