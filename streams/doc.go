// Package streams says how weir's messages move: which JetStream stream keeps
// which subjects and for how long, and what an actor's input is. It is data and
// arithmetic only; nothing here talks to a server.
//
// Read table.go first (every stream with the reason for its settings), then
// input.go (how an actor is fed), then topology.go (the types).
//
// Two runners carry actors: streams/jsrun on JetStream and the wall clock,
// streams/simrun on a virtual clock. Both pass the suite in streams/conform.
package streams
