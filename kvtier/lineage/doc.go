// Package lineage keeps what agents said: each session's tree of branches, the
// tokens of each branch, and which turn is whose.
//
// Read lineage.go first (what comes in), then admit.go (from a published turn to
// a READY message), then log.go (why a conversation that is sent again as text
// becomes the very tokens that were computed before).
//
// The actor is the only writer of READY. It holds nothing that AGENT and RESULT
// do not hold: it restores a snapshot and reads both streams from there on.
package lineage
