// Package schemas is weir's contract: every subject, every message, the codec
// and the Actor interface that all decision code implements.
//
// Read subjects.go first (what flows where), then actor.go (how decisions are
// written), then the message that interests you: one file per topic.
//
// Everything on the wire is JSON with one Go type per message, so that the nats
// command line can read it. Token arrays and frames are kept compact. Times are
// Unix nanoseconds in fields that end in _ns, durations too.
//
// The package imports the standard library only.
package schemas
