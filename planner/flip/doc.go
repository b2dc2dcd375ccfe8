// Package flip holds the rules by which roles change: when a split that looks better is
// worth going to, and which executors go.
//
// Read rules.go (when), then choose.go (which).
package flip
