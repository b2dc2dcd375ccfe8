// Package stack runs weir as its users do: `weir up` and a NATS server as real
// processes on free ports and in their own folders, which tests kill, stop and
// restart.
//
// Read stack.go (start and stop), then events.go (what the supervisor tells),
// client.go (turns, roles, heartbeats), memory.go (KV blocks, eviction), nats.go (a
// NATS server apart), and testing.go (the same for tests). Functions return errors
// instead of failing a test, because `make show-turn` uses them too.
package stack
