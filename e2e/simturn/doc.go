// Package simturn runs the actors of a turn together on the virtual clock of
// streams/simrun: lineage, router and executors with the fake engine, under
// delays, repeats, losses and crashes. Its tests check that every acknowledged
// turn ends in exactly one result with the right tokens, and that a seed repeats a
// run byte for byte.
//
// Read stack_test.go first (what runs), then turns_test.go (what is checked).
package simturn
