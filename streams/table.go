package streams

import (
	"fmt"
	"time"

	"github.com/weir-dev/weir/schemas"
)

// Names of the streams.
const (
	Agent   = "AGENT"
	Ready   = "READY"
	Prefill = "PREFILL"
	Decode  = "DECODE"
	Done    = "DONE"
	KV      = "KV"
	Branch  = "BRANCH"
	Role    = "ROLE"
	Report  = "REPORT"
	Plan    = "PLAN"
	Out     = "OUT"
	Ckpt    = "CKPT"
	Result  = "RESULT"
	Snap    = "SNAP"
	Dead    = "DEAD"
	Lease   = "LEASE"
	// PayloadBucket is the object bucket of large bodies; NATS keeps it in the
	// stream PayloadStream.
	PayloadBucket = "PAYLOAD"
	PayloadStream = "OBJ_" + PayloadBucket
)

// LeaseTTL is how long a lease lives without being renewed.
const LeaseTTL = 3 * time.Second

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	day = 24 * time.Hour
	// msgSize is schemas.MaxMessage plus room for headers; it stays below the
	// default max_payload of NATS (1 MiB).
	msgSize = schemas.MaxMessage + 16<<10
)

// Topology returns every stream of weir, in a fixed order. The
// streams pass Check unless Options shrinks one too far.
func Topology(o Options) []Stream {
	topo := append(append(turnStreams(), controlStreams()...), keptStreams()...)
	for i := range topo {
		o.apply(&topo[i])
	}
	return topo
}

// turnStreams carry a turn from its caller to the executors and back.
func turnStreams() []Stream {
	return []Stream{
		{
			// What agents said. An acknowledged turn must not be lost, so a full
			// stream refuses. The partition behind the root lets several lineage
			// shards share the stream, each with one filter per partition.
			Name: Agent, Subjects: []string{Pattern(schemas.RootAgent)}, Stored: []string{"agent.*.*.*.*"},
			Transform: &Transform{
				Source:      Pattern(schemas.RootAgent),
				Destination: fmt.Sprintf("agent.{{partition(%d,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}", Partitions),
			},
			Store: File, Discard: DiscardNew, MaxAge: day, MaxBytes: 1024 * mib, Duplicates: 2 * time.Minute, AllowDirect: true,
		},
		{
			// Rendered turns that wait or are in work. Acknowledging one deletes
			// it; a restarted router recreates its consumer and gets all of them again.
			Name: Ready, Subjects: []string{Pattern(schemas.RootReady)}, Store: File, Retention: WorkQueue,
			Discard: DiscardNew, MaxAge: day, MaxBytes: 512 * mib, Duplicates: 2 * time.Minute, AllowDirect: true,
		},
		// Placed jobs. They are read within milliseconds and linger until their age
		// ends, so when space runs out the oldest go: those were read. A job that
		// was lost is missing from two heartbeats and is placed again.
		{
			Name: Prefill, Subjects: []string{Pattern(schemas.RootPrefill)}, Store: Memory,
			Discard: DiscardOld, MaxAge: 2 * time.Minute, MaxBytes: 192 * mib, Duplicates: time.Minute,
		},
		{
			Name: Decode, Subjects: []string{Pattern(schemas.RootDecode)}, Store: Memory,
			Discard: DiscardOld, MaxAge: 2 * time.Minute, MaxBytes: 192 * mib, Duplicates: time.Minute,
		},
		{
			Name: Done, Subjects: []string{Pattern(schemas.RootDone)}, Store: Memory,
			Discard: DiscardOld, MaxAge: 2 * time.Minute, MaxBytes: 64 * mib, Duplicates: 30 * time.Second,
		},
		{
			// Frames are not jobs: the result holds the whole answer, a reader that
			// comes later than the oldest frame takes it from there.
			Name: Out, Subjects: []string{Pattern(schemas.RootOut)}, Store: Memory,
			Discard: DiscardOld, MaxAge: 10 * time.Minute, MaxBytes: 256 * mib, Duplicates: 30 * time.Second, AllowDirect: true,
		},
		{
			Name: Ckpt, Subjects: []string{Pattern(schemas.RootCkpt)}, Store: File, MaxMsgsPerSubject: 1,
			Discard: DiscardOld, MaxAge: day, MaxBytes: 256 * mib, Duplicates: 30 * time.Second, AllowDirect: true,
		},
		{
			Name: Result, Subjects: []string{Pattern(schemas.RootResult)}, Store: File, MaxMsgsPerSubject: 1,
			Discard: DiscardNew, MaxAge: day, MaxBytes: 1024 * mib, Duplicates: 2 * time.Minute, AllowDirect: true,
		},
	}
}

// controlStreams carry what parts tell each other about themselves.
func controlStreams() []Stream {
	return []Stream{
		// Gap logs: the sender's state is the truth and can be asked for.
		{
			Name: KV, Subjects: []string{Pattern(schemas.RootKV)}, Store: Memory,
			Discard: DiscardOld, MaxAge: 2 * time.Minute, MaxBytes: 64 * mib, Duplicates: 30 * time.Second,
		},
		{
			Name: Branch, Subjects: []string{Pattern(schemas.RootBranch)}, Store: Memory,
			Discard: DiscardOld, MaxAge: 2 * time.Minute, MaxBytes: 32 * mib, Duplicates: 30 * time.Second,
		},
		{
			// Assignments. The stream sequence is the epoch, so this one is on disk.
			Name: Role, Subjects: []string{Pattern(schemas.RootRole), Pattern(schemas.RootMode)}, Store: File, MaxMsgsPerSubject: 1,
			Discard: DiscardNew, MaxBytes: 16 * mib, Duplicates: time.Minute, AllowDirect: true,
		},
		{
			Name: Report, Subjects: []string{Pattern(schemas.RootReport), Pattern(schemas.RootLoad)}, Store: Memory, MaxMsgsPerSubject: 1,
			Discard: DiscardOld, MaxAge: 10 * time.Minute, MaxBytes: 16 * mib, Duplicates: 30 * time.Second, AllowDirect: true,
		},
		{
			Name: Plan, Subjects: []string{Pattern(schemas.RootPlan)}, Store: File,
			Discard: DiscardOld, MaxAge: 30 * day, MaxBytes: 64 * mib, Duplicates: time.Minute, AllowDirect: true,
		},
		{
			// A lease ends by the TTL of its message; MaxAge only sweeps up.
			Name: Lease, Subjects: []string{Pattern(schemas.RootLease)}, Store: Memory, MaxMsgsPerSubject: 1,
			Discard: DiscardOld, MaxAge: 5 * time.Minute, MaxBytes: 4 * mib, Duplicates: time.Second, AllowDirect: true, AllowMsgTTL: true,
		},
	}
}

// keptStreams hold what outlives a turn.
func keptStreams() []Stream {
	return []Stream{
		{
			Name: Snap, Subjects: []string{Pattern(schemas.RootSnap)}, Store: File, MaxMsgsPerSubject: 1,
			Discard: DiscardOld, MaxBytes: 512 * mib, Duplicates: time.Minute, AllowDirect: true,
		},
		{
			// The oldest dead letters go first: refusing one would keep the message
			// that cannot be processed in its input for ever.
			Name: Dead, Subjects: []string{Pattern(schemas.RootDead)}, Store: File,
			Discard: DiscardOld, MaxAge: 7 * day, MaxBytes: 64 * mib, Duplicates: 2 * time.Minute, AllowDirect: true,
		},
		{
			// The subjects and the roll-up right are those of a NATS object bucket.
			Name: PayloadStream, Subjects: []string{"$O." + PayloadBucket + ".C.>", "$O." + PayloadBucket + ".M.>"},
			Store: File, Discard: DiscardNew, MaxAge: 2 * day, MaxBytes: 1024 * mib, Duplicates: time.Minute, AllowDirect: true,
		},
	}
}

// apply fills what all streams share and what the options change.
func (o Options) apply(s *Stream) {
	s.MaxMsgs = -1
	if s.MaxMsgsPerSubject == 0 {
		s.MaxMsgsPerSubject = -1
	}
	s.MaxMsgSize = int32(msgSize)
	s.MaxConsumers = max(o.MaxConsumers, 0)
	if s.MaxConsumers == 0 {
		s.MaxConsumers = 5000
	}
	s.Replicas = 1
	if s.Store == File && o.Replicas > 1 {
		s.Replicas = o.Replicas
	}
	if o.Scale > 0 {
		s.MaxBytes = max(int64(float64(s.MaxBytes)*o.Scale)/kib*kib, minBytes)
	}
	if b, ok := o.MaxBytes[s.Name]; ok {
		s.MaxBytes = b
	}
	if age, ok := o.MaxAge[s.Name]; ok {
		s.MaxAge, s.AgeFixed = age, true
		if age > 0 {
			s.Duplicates = min(s.Duplicates, age) // a longer window is refused
		}
	}
}
