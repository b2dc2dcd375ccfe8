package streams

import (
	"fmt"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// Policy says when an input message counts as handled.
type Policy uint8

// The policies.
const (
	// AutoAck: when every publish of the Step that got it was acknowledged.
	AutoAck Policy = iota
	// Hold: when the actor says so by KindAck.
	Hold
	// NoAck: when it was delivered. A crash loses what was on the way.
	NoAck
)

// Deliver says where a consumer that does not exist yet starts.
type Deliver uint8

// The starts.
const (
	DeliverAll Deliver = iota
	DeliverNew
	DeliverLastPerSubject
	DeliverFromSeq // at Input.FromSeq
)

// Defaults of Input, with the reason for each.
const (
	// DefaultBatch amortises a pull request over many messages without holding
	// more than one batch in the client.
	DefaultBatch = 256
	// DefaultAckWait bounds how long a message of a crashed service waits.
	DefaultAckWait = 30 * time.Second
	// DefaultHoldWait: held messages live as long as a turn; a restarted service
	// recreates its consumer instead of waiting for this.
	DefaultHoldWait = time.Hour
	// DefaultMaxAckPending leaves room for many batches; held messages need more
	// because every turn in work is one.
	DefaultMaxAckPending     = 4096
	DefaultMaxAckPendingHold = 16384
	// InactiveAfter is when the server forgets a consumer without a durable name
	// that nobody pulls from.
	InactiveAfter = time.Minute
)

// Input is one source of messages of an actor.
type Input struct {
	// Stream to read, or empty for Core.
	Stream string
	// Core: a plain subscription on Filters without any history.
	Core bool
	// Filters are the subjects wanted, as stored (see StoredSubject). None means all.
	Filters []string
	// Durable names a consumer that survives the service; empty makes one that
	// the server forgets a minute after its reader.
	Durable string
	Policy  Policy
	Deliver Deliver
	FromSeq uint64
	// Resume starts behind the last sequence of this stream that the actor's
	// snapshot contains, when there is a snapshot.
	Resume bool
	// Recreate replaces a durable consumer at start, so that everything that is
	// not acknowledged comes again at once instead of after AckWait.
	Recreate bool

	Batch         int
	AckWait       time.Duration
	MaxAckPending int
}

// WithDefaults returns the input with zero fields filled.
func (in Input) WithDefaults() Input {
	if in.Batch <= 0 {
		in.Batch = DefaultBatch
	}
	if in.AckWait <= 0 {
		in.AckWait = DefaultAckWait
		if in.Policy == Hold {
			in.AckWait = DefaultHoldWait
		}
	}
	if in.MaxAckPending <= 0 {
		in.MaxAckPending = DefaultMaxAckPending
		if in.Policy == Hold {
			in.MaxAckPending = DefaultMaxAckPendingHold
		}
	}
	return in
}

// CheckInputs reports inputs that cannot work: an unknown stream, a work queue
// without acknowledgements, two acknowledged inputs of the same stream (KindAck
// names its input by the root alone).
func CheckInputs(topo []Stream, ins []Input) error {
	acked := map[string]bool{}
	for i, in := range ins {
		if in.Core {
			if len(in.Filters) == 0 || in.Stream != "" {
				return fmt.Errorf("%w: inputs[%d] is core, it needs filters and no stream", ErrInput, i)
			}
			continue
		}
		s, ok := Find(topo, in.Stream)
		if !ok {
			return fmt.Errorf("%w: inputs[%d] reads stream %q, which the topology does not have", ErrInput, i, in.Stream)
		}
		if s.Retention == WorkQueue && (in.Policy == NoAck || in.Deliver != DeliverAll) {
			return fmt.Errorf("%w: inputs[%d] reads the work queue %s: it must acknowledge and deliver all", ErrInput, i, in.Stream)
		}
		if in.Deliver == DeliverLastPerSubject && len(in.Filters) == 0 {
			return fmt.Errorf("%w: inputs[%d] wants the last message per subject, it needs filters", ErrInput, i)
		}
		if in.Policy == NoAck {
			continue
		}
		if acked[in.Stream] {
			return fmt.Errorf("%w: inputs[%d] is the second acknowledged input of %s", ErrInput, i, in.Stream)
		}
		acked[in.Stream] = true
	}
	return nil
}

// Wants reports whether a stored subject passes the input's filters.
func (in *Input) Wants(subject string) bool {
	if len(in.Filters) == 0 {
		return true
	}
	for _, f := range in.Filters {
		if Matches(f, subject) {
			return true
		}
	}
	return false
}

// StreamOf returns the stream that keeps messages of a root, "" for core roots.
func StreamOf(r schemas.Root) string { return streamOf[r] }

// streamOf is the table's inverse; a test holds both together.
var streamOf = map[schemas.Root]string{
	schemas.RootAgent: Agent, schemas.RootReady: Ready, schemas.RootPrefill: Prefill, schemas.RootDecode: Decode,
	schemas.RootDone: Done, schemas.RootKV: KV, schemas.RootBranch: Branch, schemas.RootRole: Role,
	schemas.RootReport: Report, schemas.RootPlan: Plan, schemas.RootMode: Role, schemas.RootLoad: Report, schemas.RootOut: Out, schemas.RootCkpt: Ckpt,
	schemas.RootResult: Result, schemas.RootSnap: Snap, schemas.RootDead: Dead, schemas.RootLease: Lease,
}
