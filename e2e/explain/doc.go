// Package explain plants one turn per cause of a miss on a real stack, and checks
// that `weir explain turn` names the cause, and where the text decides, the message
// and the byte.
//
// Read cases.go (what is planted), then run.go.
package explain
