// Package badinput gives weir what it must refuse: requests that are wrong in every
// way that came to mind, a machine that lacks what the flags ask for, and storage
// that is full. Each refusal must say what was wrong, nothing acknowledged may be
// lost, nothing may hang, and a good turn must work afterwards.
//
// Read input.go (a bad request and the two ways in), then shape.go and params.go
// (the table), then start.go (starts that must fail), then full.go (full streams and
// disks, and the figure full.lost). Functions return results and errors instead of
// failing a test, because `make show-turn` uses them too.
package badinput
