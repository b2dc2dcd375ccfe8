// Package record keeps everything that an actor is told, with everything that it
// answers, and replays it: the same build must answer the same bytes.
//
// Read message.go (how one message is written), then record.go (the actor around the
// actor), write.go (files and their bounds) and replay.go.
//
// A recording is a set of files <actor>-<cell>-<epoch>-<part>.jsonl.gz: gzip of JSON
// lines, readable with zcat. The first line of each part is a Header; every other one
// is a Line. Parts follow each other without a gap, so a recording begins with the
// actor's first message and ends where its process or its room did.
package record
