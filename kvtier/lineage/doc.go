// Package lineage keeps what agents said: each session's tree of branches, the
// messages and tokens of each branch, and which turn is whose.
//
// Read lineage.go first (what comes in), then place.go (on which branch a turn
// goes), admit.go (from a turn to a READY message), then log.go and history.go (why
// a conversation that is sent again as text becomes the very tokens that were
// computed before). event.go takes what agents say of their branches, state.go says
// where a branch stands, miss.go why a turn computes what it computes.
//
// The actor is the only writer of READY. It holds nothing that AGENT and RESULT
// do not hold: it restores a snapshot and reads both streams from there on.
package lineage
