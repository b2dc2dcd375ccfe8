// Package simrun carries actors on a virtual clock: the same actors, inputs and
// topology as streams/jsrun, with a bus that is modelled in memory.
//
// Read sim.go first (the events and their order), then stream.go (what a stream
// keeps), consumer.go (deliveries and redeliveries), service.go (one actor).
//
// Everything happens in one goroutine in the order (time, priority, sequence of
// creation). Chance comes from one seed; every link draws from its own source,
// named after it, so one more message on one link changes nothing on another.
// The same seed and the same calls give the same log, byte for byte.
//
// Modelled: sequences, work queues, ids and their window, expected sequences,
// limits by age, size and per subject, consumers with all starts, AckWait,
// MaxAckPending, delays, publishes whose acknowledgement is lost and which are
// repeated, lost core messages, crashes and restarts with snapshots. Messages of
// one service keep their order per subject, not across subjects. Not modelled:
// message TTLs (leases), a bus that is away.
package simrun
