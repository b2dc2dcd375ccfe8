package jsrun

import "sync/atomic"

// Stats counts what a runner did since its start. Fields may be read at any time.
type Stats struct {
	In        atomic.Uint64 // messages handed to the actor, ticks and completions not counted
	Out       atomic.Uint64 // publishes and core messages sent, repeats not counted
	Acked     atomic.Uint64 // inputs acknowledged
	Naked     atomic.Uint64 // inputs given back because a publish failed
	Dead      atomic.Uint64 // dead letters written
	Retried   atomic.Uint64 // publishes sent again
	Conflicts atomic.Uint64 // publishes refused by their expected sequence
	Failed    atomic.Uint64 // publishes given up, full streams included
	Dropped   atomic.Uint64 // core messages that could not be sent
	Repeated  atomic.Uint64 // inputs that came again while in hand
	Recreated atomic.Uint64 // consumers made again
	Snapshots atomic.Uint64 // snapshots written
	Inbox     atomic.Int64  // decoded inputs that wait for the actor
	Inflight  atomic.Int64  // publishes without an acknowledgement
	Held      atomic.Int64  // inputs delivered and not acknowledged
}
