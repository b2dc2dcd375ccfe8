// Package up runs a whole stack on one machine: a supervisor with children for
// NATS and the deciding services (control), the shared KV memory (tier) and every
// executor. Children end with it.
//
// Read up.go (what is started in which order), then preflight.go (what is found
// out before), then child.go (how a child that ends is started again and how the
// router hears of it).
package up
