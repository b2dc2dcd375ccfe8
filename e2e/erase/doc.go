// Package erase plants words all over a stack, erases the session that said them, and
// searches every store, byte by byte, before and after.
//
// Read plant.go (which word is said where, and where it must be found), then scan.go
// (how files and streams are searched, also through compression), arena.go (KV blocks),
// and run.go (the run).
package erase
