// Package turncmd is the command "weir turn": it publishes one turn and prints
// the answer while it comes.
//
// Read command.go for the flags, then run.go for what happens, then print.go for
// the two forms of output.
package turncmd
