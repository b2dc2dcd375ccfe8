// Package explaincmd is `weir explain`: where the time of a turn went, which part of
// its prompt was found in memory, and why the rest was not.
//
// Read turn.go (what is said of a turn), session.go (of a session), then read.go
// (where it comes from) and print.go.
//
// Everything is read from streams, from lineage and from the payload bucket, and
// nothing is changed. What has aged out, or does not answer, is named as missing.
package explaincmd
