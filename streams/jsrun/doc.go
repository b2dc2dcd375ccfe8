// Package jsrun carries actors on NATS JetStream and the wall clock.
//
// Read runner.go first (the one goroutine that owns an actor), then outbox.go
// (publishes, their acknowledgements and retries), then feeder.go (inputs).
// provision.go makes the streams, embedded.go starts NATS in this process.
//
//	feeder --+                      +--> outbox --> NATS
//	feeder --+-> inbox -> actor ----+--> acknowledgements of inputs
//	timer, operations, connection --+--> local operations
//
// What a restart of NATS or of this process may repeat is repeated: every
// publish that matters carries a message id, and inputs may come twice.
package jsrun
